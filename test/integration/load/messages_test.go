//go:build full

package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// paths is a request of n descriptors, each with a value of its own.
func paths(domain string, n int) *ratelimitv3.RateLimitRequest {
	req := &ratelimitv3.RateLimitRequest{Domain: domain}
	for i := range n {
		entries := []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "path", Value: strconv.Itoa(i)}}
		req.Descriptors = append(req.Descriptors, &ratelimitcommon.RateLimitDescriptor{Entries: entries})
	}
	return req
}

// empties is a request of n descriptors with nothing in them, which is two bytes for each.
func empties(n int) *ratelimitv3.RateLimitRequest {
	nothing := new(ratelimitcommon.RateLimitDescriptor)
	req := &ratelimitv3.RateLimitRequest{Domain: "hostile", Descriptors: make([]*ratelimitcommon.RateLimitDescriptor,
		n)}
	for i := range req.Descriptors {
		req.Descriptors[i] = nothing
	}
	return req
}

// crowded is a request of one descriptor with n empty entries.
func crowded(n int) *ratelimitv3.RateLimitRequest {
	nothing := new(ratelimitcommon.RateLimitDescriptor_Entry)
	d := &ratelimitcommon.RateLimitDescriptor{Entries: make([]*ratelimitcommon.RateLimitDescriptor_Entry, n)}
	for i := range d.Entries {
		d.Entries[i] = nothing
	}
	return &ratelimitv3.RateLimitRequest{Domain: "hostile", Descriptors: []*ratelimitcommon.RateLimitDescriptor{d}}
}

// decide sends a request and fails the test unless there is a decision.
func (c *caller) decide(t *testing.T, req *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitResponse {
	ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
	defer cancel()
	got, err := c.client.ShouldRateLimit(ctx, req)
	if err != nil {
		t.Errorf("no decision: %v", err)
	}
	return got
}

// TestWhatOneMessageMayBring: a message above the bounds is refused, one at the bounds is decided, and neither is an
// error. A refusal has a status for each descriptor that was read: of too many bytes none was. Each reason is counted.
func TestWhatOneMessageMayBring(t *testing.T) {
	s, c := startHostile(t, servers.StartRedis(t))
	for _, row := range []struct {
		name     string
		req      *ratelimitv3.RateLimitRequest
		over     bool
		statuses int
		reason   string
	}{
		{"4 MiB of empty descriptors", empties(2_090_000), true, 0, "bytes"},
		{"a domain of 2 MiB", &ratelimitv3.RateLimitRequest{Domain: strings.Repeat("x", 2<<20)}, true, 0, "bytes"},
		{"10,001 descriptors", empties(10_001), true, 10_001, "descriptors"},
		{"10,000 descriptors", empties(10_000), false, 10_000, ""},
		{"1 MiB of empty entries", crowded(500_000), false, 1, ""},
		{"1,000 charges", paths("hostile", 1000), false, 1000, ""},
		{"129 charges, all or none", paths("together", 129), true, 129, "charges"},
		{"128 charges, all or none", paths("together", 128), false, 128, ""},
	} {
		before := excess(t, s)
		got := c.decide(t, row.req)
		over := got.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT
		if over != row.over || len(got.GetStatuses()) != row.statuses {
			t.Errorf("%s: %v with %d statuses, want over %v with %d", row.name, got.GetOverallCode(),
				len(got.GetStatuses()), row.over, row.statuses)
		}
		after := excess(t, s)
		if row.reason != "" && after[row.reason] != before[row.reason]+1 {
			t.Errorf("%s: excess by reason %v, was %v, want one more of %s", row.name, after, before, row.reason)
		}
	}
	wantWithin(t, s, "after one message of each kind")
	c.wantDenied(t)
	wantJSONRefused(t, s, `{"descriptors": [{}`+strings.Repeat(",{}", 340_000)+`]}`)
	wantJSONRefused(t, s, strings.Repeat(" ", 1<<20)+"{}")
	wantWithin(t, s, "after the same over /json")
}

// wantJSONRefused sends a body to /json, which is answered with 429.
func wantJSONRefused(t *testing.T, s *servers.Sidecar, body string) {
	t.Helper()
	r, err := http.Post("http://"+s.HTTP+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatalf("no decision over /json: %v", err)
	}
	defer r.Body.Close()
	text := must.Get(io.ReadAll(r.Body))(t)
	if r.StatusCode != http.StatusTooManyRequests || !strings.HasPrefix(string(text), `{"overallCode":"OVER_LIMIT"`) {
		t.Errorf("/json answers %.60q… with %d %.200s, want 429", body, r.StatusCode, text)
	}
}

func excess(t *testing.T, s *servers.Sidecar) map[string]int64 {
	t.Helper()
	m := must.Get(servers.Scrape(s.Debug))(t)
	return m.By("spillway_excess_requests_total", "reason")
}

// wantDenied sends a request with a body of 2 MiB over ext_authz, which is answered with 429.
func (c *caller) wantDenied(t *testing.T) {
	t.Helper()
	req := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Path: "/", Method: "POST",
			Body: strings.Repeat("x", 2<<20)}},
	}}
	got, err := authv3.NewAuthorizationClient(c.conn).Check(context.Background(), req)
	if err != nil {
		t.Fatalf("no decision over ext_authz: %v", err)
	}
	if code := got.GetDeniedResponse().GetStatus().GetCode(); code != typev3.StatusCode(http.StatusTooManyRequests) {
		t.Errorf("2 MiB over ext_authz are answered with %v, want 429", got)
	}
}

// TestLargeMessagesAtOnce: many clients send the largest messages at once. Every one is decided, within the memory of
// the manifests.
func TestLargeMessagesAtOnce(t *testing.T) {
	s, _ := startHostile(t, servers.StartRedis(t))
	requests := []*ratelimitv3.RateLimitRequest{empties(2_090_000), crowded(500_000), paths("hostile", 10_000),
		empties(10_000)}
	var all sync.WaitGroup
	for i := range 16 {
		c := dial(t, s.GRPC)
		c.connect(t)
		all.Go(func() {
			for n := range 4 {
				c.decide(t, requests[(i+n)%len(requests)])
			}
		})
	}
	all.Wait()
	t.Logf("excess by reason: %v", excess(t, s))
	wantWithin(t, s, "after large messages at once")
}

var scriptCalls = regexp.MustCompile(`cmdstat_evalsha?:calls=(\d+)`)

// TestManyChargesLeaveRedisToOthers: a request of 10,000 charges goes to Redis in calls of at most 128, so that other
// clients get their replies in between.
func TestManyChargesLeaveRedisToOthers(t *testing.T) {
	redis := servers.StartRedis(t)
	_, c := startHostile(t, redis)
	c.decide(t, paths("hostile", 1))
	before := calls(t, redis)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.decide(t, paths("hostile", 10_000))
	}()
	longest, pings := time.Duration(0), 0
	for running := true; running; pings++ {
		select {
		case <-done:
			running = false
		default:
		}
		began := time.Now()
		redis.Do(t, "PING")
		longest = max(longest, time.Since(began))
	}
	got := calls(t, redis) - before
	t.Logf("%d calls of the script; the longest of %d pings with a new connection each took %v", got, pings, longest)
	if got < 10_000/128 {
		t.Errorf("%d calls of the script for 10,000 charges, want at least %d", got, 10_000/128)
	}
}

// calls is how many calls of the script the server has run.
func calls(t *testing.T, redis *servers.Redis) (n int) {
	t.Helper()
	for _, found := range scriptCalls.FindAllStringSubmatch(fmt.Sprint(redis.Do(t, "INFO", "commandstats")), -1) {
		one, _ := strconv.Atoi(found[1])
		n += one
	}
	return n
}
