package sidecar

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/test/servers"
)

// hostileReplies are replies that Redis never sends to what a sidecar asks.
var hostileReplies = map[string]string{
	"a list of one":   "*1\r\n$3\r\nodd\r\n",
	"a list of three": "*3\r\n$1\r\na\r\n$2\r\n{}\r\n$1\r\nb\r\n",
	"an empty list":   "*0\r\n",
	"no list":         "*-1\r\n",
	"nothing":         "$-1\r\n",
	"lists in lists":  "*2\r\n*1\r\n*1\r\n:1\r\n*0\r\n",
	"numbers without end": "$" + fmt.Sprint(2*5000-1) + "\r\n" + strings.TrimSuffix(strings.Repeat("9 ", 5000),
		" ") + "\r\n",
	"the largest numbers":   "$59\r\n9223372036854775807 9223372036854775807 9223372036854775807\r\n",
	"numbers below zero":    "$11\r\n-1 -2 -3 -4\r\n",
	"numbers that are none": "$11\r\nNaN inf 1e9\r\n",
	"three bytes":           "$3\r\n\x00\xff\x01\r\n",
	"a hundred zeros":       "$100\r\n" + strings.Repeat("\x00", 100) + "\r\n",
	"a number":              ":-9223372036854775808\r\n",
	"a status":              "+OK\r\n",
	"JSON null":             "*2\r\n$4\r\nshop\r\n$4\r\nnull\r\n",
	"an error":              "-ERR go away\r\n",
	"an error in a list":    "*2\r\n-ERR one\r\n-ERR two\r\n",
}

// greets reports whether a command is part of making a connection, or not asked by the sidecar itself.
func greets(command []string) bool {
	switch strings.ToUpper(command[0]) {
	case "AUTH", "SELECT", "HELLO", "CLIENT", "SCRIPT", "PING", "SUBSCRIBE":
		return true
	}
	return false
}

// hostileRules have limits of users, which are counted, and leased, in Redis.
const hostileRules = "domain: shop\nrules:\n  - { name: each, scope: user, limit: 1000000/1h }\n"

// TestNoReplyOfRedisEndsASidecar: with any reply to all that it asks, it lives, and it decides by Redis again once that
// answers.
func TestNoReplyOfRedisEndsASidecar(t *testing.T) {
	redis := servers.StartRedis(t)
	keys := keys.NewNames("", nil)
	redis.Do(t, "ZADD", keys.Shared("index"), "+inf", "shop|user", "+inf", "shop|ip4/24")
	for name, reply := range hostileReplies {
		t.Run(name, func(t *testing.T) {
			forger := servers.StartForger(t, redis)
			forger.Set(func(command []string) []byte {
				if greets(command) {
					return nil
				}
				return []byte(reply)
			})
			file := t.TempDir() + "/rules.yaml"
			write(t, file, hostileRules)
			s := launch(t, nil, file, "RULES=redis:,"+file, "REDIS_URL="+forger.Addr, "RECORD=true", "STORE_SILENCE=1s",
				"STORE_PATIENCE=2s")
			client := dial(t, s.Addresses().GRPC)
			var asked sync.WaitGroup
			for i := range 100 { // one of them becomes hot
				asked.Go(func() { _, _ = ask(client, []string{"alice", fmt.Sprint("user-", i)}[i%2]) })
			}
			asked.Wait()
			fetch(t, s.Addresses().Debug, "/v1/sidecars")
			s.lookForRules()
			s.counts.redis.Serve([]string{"shop", "mail"})
			s.counts.profiles.Outdate()
			forger.AwaitMet(t, 10) // some of them of what runs by itself
			forger.Set(nil)
			servers.Await(t, "decisions by Redis", func() error {
				before := redis.Do(t, "DBSIZE").(int64)
				if _, err := ask(client, fmt.Sprint("later-", forger.Met(), before)); err != nil {
					return err
				}
				if after := redis.Do(t, "DBSIZE").(int64); after <= before {
					return fmt.Errorf("%d keys in Redis, then %d", before, after)
				}
				return nil
			})
			expectPage(t, s.Addresses().HTTP, "/healthcheck", http.StatusOK, "OK")
			expectPage(t, s.Addresses().Debug, "/metrics", http.StatusOK, "\nspillway_panics_total 0\n")
		})
	}
}

// TestPublishedRulesThatAreNoPairs: the first crash that an adversary found, by name.
func TestPublishedRulesThatAreNoPairs(t *testing.T) {
	redis := servers.StartRedis(t)
	forger := servers.StartForger(t, redis)
	published := keys.NewNames("", nil).Shared(rules.PublishedKey)
	forger.Set(func(command []string) []byte {
		if strings.EqualFold(command[0], "HGETALL") && command[1] == published {
			return []byte(hostileReplies["a list of one"])
		}
		return nil
	})
	file := t.TempDir() + "/rules.yaml"
	write(t, file, twoPerYear)
	s := launch(t, nil, file, "RULES=redis:,"+file, "REDIS_URL="+forger.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	forger.AwaitMet(t, 1)
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)
}
