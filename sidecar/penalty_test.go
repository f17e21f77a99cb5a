package sidecar

import (
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// spreadRules has a rule that counts elsewhere in a cluster than its clients' records.
const spreadRules = `
domain: shop
penalty: { cool_down: 1h }
rules:
  - { name: all, scope: global, match: { users: [alice] }, limit: 1/1h }
  - { name: each, scope: user, limit: 99/1h }
`

// TestADomainsPenaltyInACluster holds that sidecars share one record per client, wherever in a cluster the rules count
// that refuse it.
func TestADomainsPenaltyInACluster(t *testing.T) {
	c := servers.StartCluster(t)
	environ := []string{"REDIS_TYPE=CLUSTER", "REDIS_URL=" + strings.Join(c.Addrs()[:2], ","), "STORE_SILENCE=1s",
		"STORE_PATIENCE=2s"}
	const counter, record = "rl1:{shop}:global:all:1:tb", "rl1:{shop|alice}:client:~penalty:penalty:pn"
	if c.SlotOf(t, counter) == c.SlotOf(t, record) {
		t.Fatal("the counter and the record lie in one slot, so the test shows nothing")
	}
	one, other := begin(t, spreadRules, environ...), begin(t, spreadRules, environ...)
	expectCodes(t, dial(t, one.Addresses().GRPC), "alice", codeOK, codeOver)
	expectCodes(t, dial(t, other.Addresses().GRPC), "alice", codeOver)
	home := c.MasterOf(t, c.SlotOf(t, record))
	if got := home.Do(t, "LLEN", record+":refusals"); got != int64(2) {
		t.Errorf("the record has %v instants after two refusals", got)
	}
	expectCodes(t, dial(t, one.Addresses().GRPC), "alice", codeOver)
	// The rule has room again, and the client is still refused: by a sidecar that has seen nothing of it.
	c.MasterOf(t, c.SlotOf(t, counter)).Do(t, "DEL", counter)
	fresh := begin(t, spreadRules, environ...)
	expectCodes(t, dial(t, fresh.Addresses().GRPC), "alice", codeOver, codeOver)
	expectCodes(t, dial(t, fresh.Addresses().GRPC), "bob", codeOK, codeOK)
}
