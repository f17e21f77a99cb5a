package sidecar

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// recordedRules limit users over both doors.
const recordedRules = `
domain: shop
identity:
  order: [api_key, ip]
  api_keys:
    header: x-api-key
    keys:
      - {id: ci, sha256: 72fc7c03a03fc6a7e82806ae57cdbb09995b2c1bf0b1c03d9e2d2400ead677a0, user: ann}
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 2}}
rules:
  - {name: reads, scope: ip, match: {methods: [GET]}, limit: 1/1h}
`

// secretKey is the key of ann.
const secretKey = "spw_ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// copied is what a control plane has after it has read both streams.
type copied struct {
	usage   journal.Rows
	events  []journal.Event
	dropped map[string]int64 // by stream
	ended   map[string]bool
}

// readRecord copies the streams of a sidecar's Redis as a control plane does: an entry that comes again is left out,
// and one that is missing is an error.
func readRecord(t testing.TB, s *running) (copied, error) {
	t.Helper()
	at := must.Get(s.cfg.Redises()[0].Servers(s.cfg.RedisTLS, s.reports.log, func(string) {}))(t)
	servers := redis.New(redis.Config{Servers: at})
	defer servers.Close()
	servers.Ready(t.Context())
	c := copied{dropped: map[string]int64{}, ended: map[string]bool{}}
	for _, stream := range []string{journal.UsageStream, journal.EventsStream} {
		key := s.redisNames().Shared(stream)
		reply, err := servers.Run(t.Context(), key, "XRANGE", key, "-", "+")
		if err != nil {
			return c, err
		}
		last := map[string]int64{}
		for _, item := range reply.([]any) {
			fields, words := map[string]string{}, item.([]any)[1].([]any)
			for i := 0; i+1 < len(words); i += 2 {
				fields[words[i].(string)] = words[i+1].(string)
			}
			e, err := journal.ParseEntry(fields)
			if err != nil {
				return c, err
			}
			switch {
			case e.Sequence <= last[e.Sidecar]:
				continue
			case e.Sequence > last[e.Sidecar]+1:
				return c, fmt.Errorf("%s of %s: %d follows %d", stream, e.Sidecar, e.Sequence, last[e.Sidecar])
			}
			last[e.Sidecar] = e.Sequence
			c.dropped[stream] += e.Dropped
			c.ended[stream] = e.Ended
			if err := c.take(e.Rows); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// take adds the rows of an entry.
func (c *copied) take(rows []byte) error {
	u, err := journal.Unmarshal(rows)
	if err != nil {
		return err
	}
	c.events = append(c.events, u.Events...)
	c.usage.Identities = append(c.usage.Identities, u.Identities...)
	c.usage.Endpoints = append(c.usage.Endpoints, u.Endpoints...)
	c.usage.Keys = append(c.usage.Keys, u.Keys...)
	c.usage.Caches = append(c.usage.Caches, u.Caches...)
	return nil
}

// requests adds up the requests of each identity and outcome, for a rule.
func (c *copied) requests(rule string) map[string]int64 {
	sum := map[string]int64{}
	for _, r := range c.usage.Identities {
		if r.Rule == rule {
			sum[r.Name+" "+r.Outcome] += r.Requests
		}
	}
	return sum
}

// endpoints adds up the requests of each endpoint and outcome, and checks that each has a latency.
func (c *copied) endpoints(t testing.TB) map[string]int64 {
	sum := map[string]int64{}
	for _, r := range c.usage.Endpoints {
		sum[r.Name+" "+r.Outcome] += r.Requests
		if r.Latency.Count() != r.Requests {
			t.Errorf("%d latencies of %d requests", r.Latency.Count(), r.Requests)
		}
	}
	return sum
}

// check asks over ext_authz, and reports whether the request passes.
func check(t testing.TB, conn *grpc.ClientConn, path string, headers map[string]string) bool {
	t.Helper()
	all := map[string]string{":path": path}
	maps.Copy(all, headers)
	answer := must.Get(authv3.NewAuthorizationClient(conn).Check(t.Context(),
		&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Source: &authv3.AttributeContext_Peer{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "192.0.2.7"}}}},
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
				Method: "GET", Path: path, Headers: all}},
			ContextExtensions: map[string]string{"domain": "shop"},
		}}))(t)
	return answer.GetStatus().GetCode() == 0
}

func TestBothDoorsAreRecorded(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, recordedRules, "REDIS_URL="+redis.Addr, "RECORD=true", "RECORD_ALLOWED_ONE_IN=1", "RECORD_REGION=eu",
		"CACHE_KEY_PREFIX=p")
	conn := dial(t, s.Addresses().GRPC)
	expectCodes(t, conn, "bob", codeOK, codeOK, codeOver)
	if !check(t, conn, "/items/?page=2", nil) || check(t, conn, "/items", nil) {
		t.Error("the second request of an address must be refused")
	}
	check(t, conn, "/", map[string]string{"x-api-key": secretKey})
	s.halt(t)
	got := must.Get(readRecord(t, s))(t)
	wantSums(t, "requests", got.requests(""), map[string]int64{"user:bob allowed": 2, "user:bob refused": 1,
		"ip:192.0.2.7 allowed": 1, "ip:192.0.2.7 refused": 1, "user:ann refused": 1})
	wantSums(t, "requests of a tree", got.requests("user"), map[string]int64{"user:bob allowed": 2,
		"user:bob refused": 1})
	wantSums(t, "requests of a rule", got.requests("reads"), map[string]int64{"ip:192.0.2.7 allowed": 1,
		"ip:192.0.2.7 refused": 1, "user:ann refused": 1})
	wantSums(t, "endpoints", got.endpoints(t), map[string]int64{" allowed": 2, " refused": 1, "/items allowed": 1,
		"/items refused": 1, "/ refused": 1})
	key := "key:" + journal.KeyOf("ci")
	wantSums(t, "requests of keys", got.keyed(), map[string]int64{key: 1, key + " refused": 1})
	if !got.ended[journal.UsageStream] || !got.ended[journal.EventsStream] || len(got.events) != 6 {
		t.Fatalf("ended: %v; %d events, want 6", got.ended, len(got.events))
	}
	e := got.events[0]
	for _, one := range got.events {
		if one.Outcome == "refused" && one.Endpoint == "/items" {
			e = one
		}
		if one.Endpoint == "/" && (one.APIKey != "ci" || one.Identity != "user:ann") {
			t.Errorf("the event of an API key: %+v", one)
		}
	}
	if e.Rule != "reads" || e.Identity != "ip:192.0.2.7" || e.IP != "192.0.2.7" || e.Endpoint != "/items" ||
		e.Count != 1 || e.Limit != 1 || e.Cost != 1 ||
		e.Status != 429 || e.RetryAfter <= 0 || e.Weight != 1 || time.Since(time.UnixMicro(e.At)) > time.Hour {
		t.Errorf("the event of a refusal: %+v", e)
	}
}

func wantSums(t testing.TB, what string, got, want map[string]int64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// askMany asks for some users from several goroutines, and returns what was answered, in the terms
// of the record.
func askMany(t testing.TB, conn *grpc.ClientConn, rounds int) map[string]int64 {
	t.Helper()
	var mu sync.Mutex
	answered := map[string]int64{}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range rounds {
				user := "u" + strconv.Itoa((worker+i)%7)
				code, err := ask(conn, user)
				if err != nil {
					t.Errorf("ask: %v", err)
					return
				}
				word := map[bool]string{true: " allowed", false: " refused"}[code == codeOK]
				mu.Lock()
				answered["user:"+user+word]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return answered
}

// awaitEntries waits until an entry is written to each stream.
func (r *running) awaitEntries(t testing.TB) {
	t.Helper()
	before := r.counts.journal.Stats()
	servers.Await(t, "entries of both streams", func() error {
		now := r.counts.journal.Stats()
		if now.UsageEntries == before.UsageEntries || now.EventEntries == before.EventEntries {
			return fmt.Errorf("since %+v nothing was written: %+v", before, now)
		}
		return nil
	})
}

// TestUsageIsExactThoughRepliesAreLost: entries come twice, and count once.
func TestUsageIsExactThoughRepliesAreLost(t *testing.T) {
	redis := servers.StartRedis(t)
	proxy := servers.StartProxy(t, redis.Addr)
	s := begin(t, strings.ReplaceAll(twoPerYear, ": 2}", ": 20}"), "REDIS_URL="+proxy.Addr, "RECORD=true",
		"RECORD_ALLOWED_ONE_IN=0")
	conn := dial(t, s.Addresses().GRPC)
	want := askMany(t, conn, 50)
	proxy.Set(servers.Fault{Mode: servers.DropReplies})
	for key, n := range askMany(t, conn, 50) {
		want[key] += n
	}
	servers.Await(t, "a reply to be lost", func() error {
		if s.counts.journal.Stats().Failed == 0 {
			return errors.New("every entry was answered")
		}
		return nil
	})
	proxy.Set(servers.Fault{})
	s.awaitEntries(t)
	for key, n := range askMany(t, conn, 50) {
		want[key] += n
	}
	s.halt(t)
	got := must.Get(readRecord(t, s))(t)
	wantSums(t, "requests", got.requests(""), want)
	refused := int64(0)
	for key, n := range want {
		if strings.HasSuffix(key, " refused") {
			refused += n
		}
	}
	if int64(len(got.events)) != refused || got.dropped[journal.EventsStream] != 0 {
		t.Errorf("%d events of %d refusals, %d dropped", len(got.events), refused, got.dropped[journal.EventsStream])
	}
}

// TestTheRecordWaitsForRedis: what is decided while Redis is away is written when it is back.
func TestTheRecordWaitsForRedis(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, twoPerYear, "REDIS_URL="+redis.Addr, "RECORD=true")
	conn := dial(t, s.Addresses().GRPC)
	redis.Kill(t)
	want := askMany(t, conn, 30)
	servers.Await(t, "an entry to fail", func() error { return s.logs("the record cannot be written") })
	redis.Start(t)
	s.awaitEntries(t)
	for key, n := range askMany(t, conn, 30) {
		want[key] += n
	}
	s.halt(t)
	got := must.Get(readRecord(t, s))(t)
	wantSums(t, "requests", got.requests(""), want)
}

// TestASidecarThatStopsWithoutRedisSaysWhatIsLost does not wait for a Redis that is away.
func TestASidecarThatStopsWithoutRedisSaysWhatIsLost(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, twoPerYear, "REDIS_URL="+redis.Addr, "RECORD=true")
	redis.Kill(t)
	s.counts.journal.Note(&journal.Decided{At: time.Now(), Domain: "shop", Kind: journal.User, Identity: "ann",
		Requests: 1, Event: &journal.Detail{Weight: 1}})
	s.stop()
	<-s.done
	if s.err == nil || !strings.Contains(s.err.Error(), "3 rows of usage and events could not be written") {
		t.Errorf("the sidecar ended with: %v", s.err)
	}
	s.err = nil
}

func TestRecordedIdentitiesFollowTheSecret(t *testing.T) {
	for _, plain := range []string{"false", "true"} {
		redis := servers.StartRedis(t)
		s := begin(t, twoPerYear, "REDIS_URL="+redis.Addr, "RECORD=true", "RECORD_ALLOWED_ONE_IN=1",
			"KEY_SECRET=0123456789abcdef", "RECORD_PLAIN_IDENTITIES="+plain)
		expectCodes(t, dial(t, s.Addresses().GRPC), "ann", codeOK)
		s.halt(t)
		got, err := readRecord(t, s)
		if err != nil || len(got.events) != 1 {
			t.Fatal(err, got.events)
		}
		want := "user:ann"
		if plain == "false" {
			want = s.redisNames().Identity("user", "ann")
		}
		if got.events[0].Identity != want || strings.Contains(want, "ann") != (plain == "true") {
			t.Errorf("plain %s: %q, want %q", plain, got.events[0].Identity, want)
		}
		wantSums(t, "requests", got.requests(""), map[string]int64{want + " allowed": 1})
	}
}

// hit asks for a tenant and a model, with hits that are given.
func hit(t testing.TB, conn *grpc.ClientConn, model string, hits uint64) {
	t.Helper()
	must.Get(ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{
		Domain: "llm",
		Descriptors: []*commonv3.RateLimitDescriptor{{
			Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: "acme"},
				{Key: "model", Value: model}},
			HitsAddend: wrapperspb.UInt64(hits),
		}},
	}))(t)
}

// TestCostsThatAreReportedLater count once, as what they are, and make no further request.
func TestCostsThatAreReportedLater(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, `
domain: llm
rules:
  - {name: paid, scope: tenant, limit: 1000/30d, post_paid: true, match: {entries: {model: small}}}
  - {name: reserved, scope: tenant, limit: 1000/30d, post_paid: true, reserve: 100, match: {entries: {model: large}}}
  - {name: priced, scope: tenant, limit: 1000/30d, cost: 7, match: {entries: {model: plain}}}
`, "REDIS_URL="+redis.Addr, "RECORD=true", "RECORD_ALLOWED_ONE_IN=1")
	conn := dial(t, s.Addresses().GRPC)
	for _, later := range []uint64{40, 170} { // below and above the reservation
		hit(t, conn, "small", 0)
		hit(t, conn, "small", later)
		hit(t, conn, "large", 0)
		hit(t, conn, "large", later)
	}
	hit(t, conn, "plain", 2)
	s.halt(t)
	got := must.Get(readRecord(t, s))(t)
	requests, costs := map[string]int64{}, map[string]int64{}
	for _, r := range got.usage.Identities {
		requests[r.Rule] += r.Requests
		costs[r.Rule] += r.Cost
	}
	wantSums(t, "requests", requests, map[string]int64{"": 5, "paid": 2, "reserved": 2, "priced": 1})
	wantSums(t, "costs", costs, map[string]int64{"": 434, "paid": 210, "reserved": 210, "priced": 14})
	if len(got.events) != 5 {
		t.Errorf("%d events, want one for each request", len(got.events))
	}
}
