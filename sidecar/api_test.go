package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// fewPerHour are rules that hardly refuse a user.
const fewPerHour = `
domain: shop
rules:
  - {name: each, scope: user, limit: 1000/1h}
`

// call sends a request to the API of a sidecar and returns the status and the answer.
func (r *running) call(t testing.TB, method, path string, body any, headers ...string) (int, map[string]any) {
	t.Helper()
	var sent io.Reader = http.NoBody
	if body != nil {
		text := must.Get(json.Marshal(body))(t)
		sent = bytes.NewReader(text)
	}
	request := must.Get(http.NewRequestWithContext(t.Context(), method, "http://"+r.Addresses().Debug+path, sent))(t)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	var document map[string]any
	err = json.NewDecoder(answer.Body).Decode(&document)
	if err != nil {
		t.Fatalf("%s %s: %d, and the answer is not JSON: %v", method, path, answer.StatusCode, err)
	}
	return answer.StatusCode, document
}

// operate sends a change, which must be taken.
func (r *running) operate(t testing.TB, path string, body any) map[string]any {
	t.Helper()
	status, answer := r.call(t, "POST", path, body)
	if status != http.StatusOK {
		t.Fatalf("POST %s %v = %d %v", path, body, status, answer)
	}
	return answer
}

type fields = map[string]any

func TestABlockStopsAClientOnEverySidecar(t *testing.T) {
	redis := servers.StartRedis(t)
	environ := []string{"REDIS_URL=" + redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s"}
	one, other := begin(t, fewPerHour, environ...), begin(t, fewPerHour, environ...)
	conns := []*running{one, other}
	for _, s := range conns {
		expectCodes(t, dial(t, s.Addresses().GRPC), "mallory", codeOK)
	}
	one.operate(t, "/v1/block", fields{"user": "mallory", "reason": "Contact support."})
	for i, s := range conns {
		conn := dial(t, s.Addresses().GRPC)
		servers.Await(t, fmt.Sprintf("the block on sidecar %d", i), func() error {
			code, err := ask(conn, "mallory")
			if err == nil && code != codeOver {
				err = fmt.Errorf("mallory gets %v", code)
			}
			return err
		})
		expectCodes(t, conn, "alice", codeOK)
	}
	other.operate(t, "/v1/unblock", fields{"user": "mallory"})
	for i, s := range conns {
		conn := dial(t, s.Addresses().GRPC)
		servers.Await(t, fmt.Sprintf("the end of the block on sidecar %d", i), func() error {
			code, err := ask(conn, "mallory")
			if err == nil && code != codeOK {
				err = fmt.Errorf("mallory gets %v", code)
			}
			return err
		})
	}
}

// operatedRules have limits of several scopes, a penalty and a tree.
const operatedRules = `
domain: shop
penalty: { cool_down: 1h, threshold: 2 }
rules:
  - {name: each, scope: user, limit: 2/1h}
  - {name: gold, scope: user, match: {tiers: [gold]}, limit: 100/1h}
  - {name: search, scope: [user, endpoint], match: {endpoints: ["/search"]}, limit: 50/1h}
  - {name: wide, scope: [user, ip], limit: 1000/1h}
  - {name: abusers, match: {users: [eve]}, action: block, reason: "No."}
`

func TestExplainChargesNothingAndShowsWhatWasCompared(t *testing.T) {
	s := begin(t, operatedRules)
	request := fields{"rls": fields{"domain": "shop",
		"descriptors": []fields{
			{"entries": []fields{{"key": "user", "value": "alice"}, {"key": "tier", "value": "gold"}}}}}}
	for range 5 {
		answer := s.operate(t, "/v1/explain", request)
		charges := answer["charges"].([]any)
		first := charges[0].(fields)
		if first["rule"] != "gold" || first["left"] != 100.0 || answer["verdict"].(fields)["outcome"] != "allowed" {
			t.Fatalf("explain = %v", answer)
		}
	}
	answer := s.operate(t, "/v1/explain", request)
	found := false
	for _, one := range answer["considered"].([]any) {
		one := one.(fields)
		if one["name"] == "each" {
			found = one["won"] == false && one["beaten_by"] == "gold" && one["because"] == "names a tier" &&
				one["at"] != nil
		}
	}
	if !found {
		t.Errorf("explain does not show that gold beats each by its tier: %v", answer["considered"])
	}
	answer = s.operate(t, "/v1/explain", fields{"http": fields{"domain": "shop", "method": "GET", "path": "/search",
		"peer": "192.0.2.1"}})
	if answer["client"].(fields)["evidence"] != "ip" || answer["answers"].(fields)["ext_authz"] == nil {
		t.Errorf("explain over HTTP = %v", answer)
	}
}

func TestResetPardonTierAndLift(t *testing.T) {
	redis := servers.StartRedis(t)
	environ := []string{"REDIS_URL=" + redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s",
		"KEY_SECRET=0123456789abcdef"}
	const threshold = 1000 // as many refusals as await does not cause
	patient := strings.Replace(operatedRules, "threshold: 2", fmt.Sprint("threshold: ", threshold), 1)
	one, other := begin(t, patient, environ...), begin(t, patient, environ...)
	conn, away := dial(t, one.Addresses().GRPC), dial(t, other.Addresses().GRPC)
	expectCodes(t, conn, "alice", codeOK, codeOK)
	expectCodes(t, away, "alice", slices.Repeat([]ratelimitv3.RateLimitResponse_Code{codeOver}, threshold)...)
	expectCodes(t, conn, "alice", codeOver)
	usage := func() fields {
		status, answer := other.call(t, "GET", "/v1/usage?user=alice", nil)
		if status != http.StatusOK {
			t.Fatalf("usage = %d %v", status, answer)
		}
		return answer
	}
	answer := usage()
	if len(answer["unlisted"].([]any)) != 1 {
		t.Errorf("usage of alice does not tell that wide needs an ip: %v", answer)
	}
	dry := one.operate(t, "/v1/pardon", fields{"user": "alice", "dry_run": true})
	if text := fmt.Sprint(dry["before"]); !strings.Contains(text, "cool_down") {
		t.Errorf("after %d refusals there is no cool-down: %s", threshold, text)
	}
	expectCodes(t, conn, "alice", codeOver)
	if len(dry["before"].([]any)) == 0 {
		t.Errorf("a dry pardon shows nothing: %v", dry)
	}
	one.operate(t, "/v1/pardon", fields{"user": "alice"})
	one.operate(t, "/v1/reset", fields{"user": "alice"})
	expectCodes(t, conn, "alice", codeOK)
	await(t, away, "alice", codeOK)
	// A tier, and limits of one's own.
	expectCodes(t, conn, "alice", codeOver)
	one.operate(t, "/v1/tier", fields{"user": "alice", "tier": "gold"})
	await(t, conn, "alice", codeOK)
	await(t, away, "alice", codeOK)
	one.operate(t, "/v1/tier", fields{"user": "alice", "limits": []fields{{"count": 0, "per": "1h"}}})
	await(t, away, "alice", codeOver)
	one.operate(t, "/v1/tier", fields{"user": "alice", "tier": "", "limits": []fields{{"unlimited": true}}})
	one.operate(t, "/v1/pardon", fields{"user": "alice"})
	await(t, away, "alice", codeOK)
	// A block of the rule file.
	expectCodes(t, away, "eve", codeOver)
	one.operate(t, "/v1/unblock", fields{"user": "eve", "lift": true})
	await(t, away, "eve", codeOK)
	if keys := redis.Do(t, "KEYS", "*alice*"); len(keys.([]any)) > 0 {
		t.Errorf("Redis holds names in spite of KEY_SECRET: %v", keys)
	}
}

// await waits until a user gets a code.
func await(t *testing.T, conn *grpc.ClientConn, user string, want ratelimitv3.RateLimitResponse_Code) {
	t.Helper()
	servers.Await(t, fmt.Sprintf("%v for %s", want, user), func() error {
		code, err := ask(conn, user)
		if err == nil && code != want {
			err = fmt.Errorf("%s gets %v", user, code)
		}
		return err
	})
}

// TestUsageNamesTheWindowOfACalendar, and not the length of one.
func TestUsageNamesTheWindowOfACalendar(t *testing.T) {
	r := begin(t,
		"domain: shop\nrules:\n  - { name: billed, scope: user, limit: { count: 10, per: calendar_month } }\n")
	status, answer := r.call(t, "GET", "/v1/usage?user=alice", nil)
	if text := fmt.Sprint(answer); status != http.StatusOK || !strings.Contains(text, "per:calendar_month") {
		t.Errorf("%d %s", status, text)
	}
}
