package sidecar

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// expectShared checks that two sidecars with this environment count together, and record what they decide.
func expectShared(t *testing.T, environ ...string) {
	t.Helper()
	environ = append(environ, "STORE_SILENCE=1s", "STORE_PATIENCE=2s", "RECORD=true")
	one, other := begin(t, twoPerYear, environ...), begin(t, twoPerYear, environ...)
	expectCodes(t, dial(t, one.Addresses().GRPC), "alice", codeOK)
	expectCodes(t, dial(t, other.Addresses().GRPC), "alice", codeOK, codeOver)
	servers.Await(t, "readiness", func() error { return readyz(t, one, "ok\n") })
	one.halt(t)
	other.halt(t)
	got := must.Get(readRecord(t, one))(t)
	wantSums(t, "recorded requests", got.requests(""), map[string]int64{"user:alice allowed": 2,
		"user:alice refused": 1})
}

// secretFile holds a text until the test ends.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	write(t, file, text)
	return file
}

func TestCountingBehindSentinels(t *testing.T) {
	s := servers.StartGuardedSentinels(t, "watch", "--requirepass", "sesame")
	expectShared(t, "REDIS_TYPE=SENTINEL", "REDIS_URL="+s.Master+","+strings.Join(s.Addrs(), ","),
		"REDIS_AUTH_FILE="+secretFile(t, "sesame\n"), "REDIS_SENTINEL_AUTH_FILE="+secretFile(t, "watch\n"))
}

func TestCountingInACluster(t *testing.T) {
	c := servers.StartCluster(t, "--requirepass", "sesame")
	expectShared(t, "REDIS_TYPE=CLUSTER", "REDIS_URL="+strings.Join(c.Addrs()[:2], ","), "REDIS_AUTH=sesame")
}

func TestCountingInARing(t *testing.T) {
	a, b := servers.StartRedis(t), servers.StartRedis(t)
	expectShared(t, "REDIS_TYPE=RING", "REDIS_URL=redis://"+a.Addr+"/1,"+b.Addr)
}

// TestCoLocatedLimitsAreOneTrip is about requests over a limit of everybody and one of the user, which a ring spreads.
func TestCoLocatedLimitsAreOneTrip(t *testing.T) {
	const rules = "rules:\n  - { name: all, scope: global, limit: 99/1h }\n" +
		"  - { name: each, scope: user, limit: 9/1h }\n"
	a, b := servers.StartRedis(t), servers.StartRedis(t)
	for head, want := range map[string]bool{"domain: shop\n": false, "domain: shop\nco_locate: true\n": true} {
		s := begin(t, head+rules, "REDIS_TYPE=ring", "REDIS_URL="+a.Addr+","+b.Addr, "STORE_SILENCE=1s",
			"STORE_PATIENCE=2s")
		client := dial(t, s.Addresses().GRPC)
		expectCodes(t, client, "the first one may have to bring the script", codeOK)
		before := trips(t, s)
		for i := range 20 {
			expectCodes(t, client, fmt.Sprintf("user-%d", i), codeOK)
		}
		if got := trips(t, s) - before; (got == 20) != want {
			t.Errorf("%q: %d trips for 20 requests; one for each is to be %v", head, got, want)
		}
	}
}

// trips is how often the sidecar has asked Redis.
func trips(t *testing.T, s *running) int {
	t.Helper()
	_, page := fetch(t, s.Addresses().Debug, "/metrics")
	found := regexp.MustCompile(`(?m)^spillway_redis_requests_total (\d+)$`).FindStringSubmatch(page)
	if found == nil {
		t.Fatal("the metrics do not tell the trips")
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

func TestLimitsByTheSecondHaveARedisOfTheirOwn(t *testing.T) {
	const rules = "domain: shop\nrules:\n  - { name: hour, scope: user, limits: [2/1h, { count: 1, per: 1s, name: " +
		"second }] }\n"
	slow, fast := servers.StartRedis(t), servers.StartRedis(t, "--requirepass", "sesame")
	s := begin(t, rules, "REDIS_URL="+slow.Addr, "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL="+fast.Addr,
		"REDIS_PERSECOND_AUTH=sesame", "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK)
	for key, want := range map[string]*servers.Redis{"rl1:{shop|alice}:user:hour:1:tb": slow,
		"rl1:{shop|alice}:user:hour:second:tb": fast} {
		for name, redis := range map[string]*servers.Redis{"REDIS_URL": slow, "REDIS_PERSECOND_URL": fast} {
			there := redis.Do(t, "EXISTS", key) == int64(1)
			if there != (redis == want) {
				t.Errorf("%s at %s: there is %v", key, name, there)
			}
		}
	}
}

func TestANewPasswordNeedsNoRestart(t *testing.T) {
	redis := servers.StartRedis(t)
	redis.Do(t, "ACL", "SETUSER", "app", "on", ">old", "~*", "&*", "+@all")
	file := secretFile(t, "app:old\n")
	s := begin(t, twoPerYear, "REDIS_URL="+redis.Addr, "REDIS_AUTH_FILE="+file, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK)
	redis.Do(t, "ACL", "SETUSER", "app", "resetpass", ">new")
	write(t, file, "app:new\n")
	redis.Do(t, "CLIENT", "KILL", "USER", "app")
	servers.Await(t, "connections with the new password", func() error {
		_, err := ask(dial(t, s.Addresses().GRPC), "bob")
		if err != nil {
			return err
		}
		if _, body := fetch(t, s.Addresses().HTTP, "/readyz"); body != "ok\n" {
			return errors.New(body)
		}
		return nil
	})
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOver)
}
