package sidecar

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestAnOutageIsTheSameInAllPlaces: a sidecar without requests reports it, and answers from what it knows itself.
func TestAnOutageIsTheSameInAllPlaces(t *testing.T) {
	redis := servers.StartRedis(t)
	environ := []string{"REDIS_URL=" + redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s"}
	one, other := begin(t, fewPerHour, environ...), begin(t, fewPerHour, environ...)
	expectCodes(t, dial(t, one.Addresses().GRPC), "alice", codeOK)
	servers.Await(t, "both sidecars", func() error {
		_, answer := one.call(t, "GET", "/v1/sidecars", nil)
		if all, _ := answer["sidecars"].([]any); len(all) != 2 || answer["unknown"] != nil {
			return fmt.Errorf("the sidecars are %v", answer)
		}
		return nil
	})
	redis.Kill(t)
	const away = "redis: dial"
	servers.Await(t, "the outage in /readyz", func() error { return readyz(t, one, "ok (degraded: "+away+")\n") })
	_, stats := one.call(t, "GET", "/v1/stats", nil)
	if fmt.Sprint(stats["degraded"]) != "["+away+"]" || stats["store"].(fields)["away"] != "dial" {
		t.Errorf("/v1/stats has %v and %v, want %s", stats["degraded"], stats["store"].(fields)["away"], away)
	}
	status, answer := one.call(t, "GET", "/v1/sidecars", nil)
	if status != http.StatusOK || !strings.Contains(fmt.Sprint(answer["unknown"]), "connection refused") {
		t.Errorf("the sidecars in an outage are %d %v", status, answer)
	}
	for _, each := range answer["sidecars"].([]any) {
		s := each.(fields)
		age, _ := s["not_heard_for"].(float64)
		if self := s["id"] == one.updates.peers.ID(); self != (age == 0) ||
			self && fmt.Sprint(s["degraded"]) != "["+away+"]" || !self && s["id"] != other.updates.peers.ID() {
			t.Errorf("a sidecar in an outage is %v", s)
		}
	}
}

// TestQuestionsInAnOutageAreAnsweredFromHere: what is left on the own share is answered, and no change is accepted.
func TestQuestionsInAnOutageAreAnsweredFromHere(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, fewPerHour, "REDIS_URL="+redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	redis.Kill(t)
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK)
	status, usage := s.call(t, "GET", "/v1/usage?user=alice", nil)
	if status != http.StatusOK || usage["profile"] != nil || usage["unknown"] == nil {
		t.Fatalf("the counters in an outage are %d %v", status, usage)
	}
	if c := usage["counters"].([]any)[0].(fields); c["share"] != true || c["left"] != 998.0 || c["unknown"] == "" {
		t.Errorf("a counter in an outage is %v, want 998 left on the share", c)
	}
	if status, top := s.call(t, "GET", "/v1/top?all=true", nil); status != http.StatusOK || top["unknown"] == nil ||
		!strings.Contains(fmt.Sprint(top["asked"]), "alice") {
		t.Errorf("the top keys in an outage are %d %v", status, top)
	}
	for path, body := range map[string]fields{"/v1/block": {"user": "bob"}, "/v1/unblock": {"user": "bob"},
		"/v1/tier": {"user": "bob", "tier": "gold"}, "/v1/reset": {"user": "alice"}, "/v1/pardon": {"user": "alice"}} {
		status, answer := s.call(t, "POST", path, body)
		if detail := fmt.Sprint(answer["detail"]); status != http.StatusServiceUnavailable ||
			!strings.HasPrefix(detail, "Redis does not answer (dial), so nothing was changed") {
			t.Errorf("POST %s in an outage = %d %s", path, status, detail)
		}
	}
	if strings.Contains(s.log.String(), "dial tcp: dial tcp") || strings.Contains(s.log.String(), "dial redis: dial") {
		t.Errorf("the log names a dial twice:\n%s", s.log)
	}
	redis.Start(t)
	servers.Await(t, "a store that was not changed", func() error {
		_, usage = s.call(t, "GET", "/v1/usage?user=bob", nil)
		if usage["unknown"] != nil {
			return errors.New("it does not answer yet")
		}
		return nil
	})
	if usage["profile"] != nil {
		t.Errorf("a block that was refused is kept: %v", usage["profile"])
	}
}
