package sidecar

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/redis/peers"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestMissingProfilesAreAskedFor sends a request of a user while profiles are put back: the control plane is asked for
// that user's, without its name in the open.
func TestMissingProfilesAreAskedFor(t *testing.T) {
	server := servers.StartRedis(t)
	keys := keys.NewNames("", []byte("sesame"))
	server.Do(t, "ZADD", keys.Shared("index"), "+inf", "shop|user", strconv.FormatInt(time.Now().UnixMilli(), 10),
		"|filling")
	f := redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{server.Addr}}})
	t.Cleanup(f.Close)
	heard := make(chan string, 1000)
	t.Cleanup(peers.Receive(f, keys.Shared("missing"), map[string]func([]byte){
		peers.TopicMissing: func(body []byte) { heard <- string(body) },
	}))
	s := begin(t, "domain: shop\nrules:\n  - { name: each, scope: user, limit: 1000000/1h }\n",
		"REDIS_URL="+server.Addr, "KEY_SECRET=sesame", "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	client := dial(t, s.Addresses().GRPC)
	var body string
	servers.Await(t, "a question", func() error {
		expectCodes(t, client, "alice", codeOK) // again: who listens may not do so yet
		select {
		case body = <-heard:
			return nil
		default:
			return errors.New("none yet")
		}
	})
	var question peers.MissingProfiles
	must.Do(t, json.Unmarshal([]byte(body), &question))
	text := must.Get(keys.Show(question.Hidden))(t)
	if strings.Contains(body, "alice") || strings.Contains(string(question.Hidden), "alice") {
		t.Errorf("the name is in the open: %s", body)
	}
	if diff := cmp.Diff(`[{"domain":"shop","kind":"user","name":"alice"}]`, string(text)); diff != "" {
		t.Errorf("the question: %s", diff)
	}
}
