package control_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	limits "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// changes measures how long changes take from the call of the API until every sidecar decides by them.
type changes struct {
	*world
	amounts
	conns []*grpc.ClientConn
	made  int // users
}

// amounts is how much is measured. With bounds it fails where the slowest sidecar takes more than a second in one of a
// hundred changes, or where an empty Redis gets less than a million profiles back in 5 seconds of two processors.
type amounts struct {
	count, rounds, load int // sidecars, rounds of four changes, users that are loaded
	bounds              bool
}

// TestChangesReachEverySidecar makes changes: blocks, ends of blocks, tiers, revoked keys. It does so on a quiet
// control plane, while users are loaded, while their profiles are put into Redis, and while they are put back. With the
// tag full it takes eight sidecars, at least 300 changes and a million users, and holds times against bounds: run it on
// a machine that does nothing else.
func TestChangesReachEverySidecar(t *testing.T) {
	a := amounts{count: 2, rounds: 2, load: 5_000}
	switch {
	case full && servers.Race:
		a = amounts{count: 8, rounds: 10, load: 30_000}
	case full:
		a = amounts{count: 8, rounds: 75, load: 1_000_000, bounds: true}
	}
	c := newChanges(t, a)
	c.during("on a quiet control plane", func() bool { return c.made >= a.rounds })
	stored, there := c.loads()
	c.during(fmt.Sprintf("while %d users are loaded", a.load), over(stored))
	c.during("while their profiles are put into Redis", over(there))
	all := c.size()
	c.redis.Do(t, "FLUSHALL")
	c.during("while all profiles are put back", func() bool { return c.size() >= all })
	c.empty()
}

// over returns whether a channel is closed.
func over(when <-chan struct{}) func() bool {
	return func() bool {
		select {
		case <-when:
			return true
		default:
			return false
		}
	}
}

// newChanges makes a world with rules, tiers, users and keys.
func newChanges(t *testing.T, a amounts) *changes {
	t.Helper()
	c := &changes{world: newWorldOn(t, servers.StartPostgres(t), 1, a.count), amounts: a}
	for _, s := range c.sidecars {
		conn := must.Get(grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
		t.Cleanup(func() { conn.Close() })
		c.conns = append(c.conns, conn)
	}
	c.must("POST", versions, map[string]any{"text": "domain: api\nidentity: { order: [api_key, ip], api_keys: { " +
		"header: x-api-key } }\nrules:\n  - { name: none, scope: ip, limit: 100000000/1m }\n"})
	for name, count := range map[string]int{"small": 1_000_000, "large": 2_000_000} {
		c.must("PUT", "/v1/domains/api/tiers/"+name,
			map[string]any{"limits": []any{map[string]any{"count": count, "per": "1h"}}})
	}
	c.awaitVersion(1)
	return c
}

// decides returns what a sidecar decides about a user: its limit in an hour, or 0 where it is blocked.
func (c *changes) decides(sidecar int, user string) (uint32, error) {
	r, err := limits.NewRateLimitServiceClient(c.conns[sidecar]).ShouldRateLimit(context.Background(),
		&limits.RateLimitRequest{
			Domain: "api", Descriptors: []*common.RateLimitDescriptor{
				{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}}},
			},
		})
	if err != nil || r.GetOverallCode() != limits.RateLimitResponse_OK {
		return 0, err
	}
	return r.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(), nil
}

// peerAt is a peer at an address.
func peerAt(address string) *auth.AttributeContext_Peer {
	return &auth.AttributeContext_Peer{Address: &core.Address{
		Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: address}},
	}}
}

// refuses returns whether a sidecar refuses an API key.
func (c *changes) refuses(sidecar int, secret string) (bool, error) {
	r, err := auth.NewAuthorizationClient(c.conns[sidecar]).Check(context.Background(),
		&auth.CheckRequest{Attributes: &auth.AttributeContext{
			ContextExtensions: map[string]string{"domain": "api"},
			Source:            peerAt("192.0.2.1"),
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: "GET",
				Path: "/", Headers: map[string]string{"x-api-key": secret}}},
		}})
	return codes.Code(r.GetStatus().GetCode()) == codes.PermissionDenied, err
}

// everywhere asks all sidecars until each has answered so, and returns how long that took since then, for the slowest.
func (c *changes) everywhere(what string, since time.Time, so func(sidecar int) (bool, error)) time.Duration {
	c.t.Helper()
	took, problems := make([]time.Duration, len(c.sidecars)), make([]error, len(c.sidecars))
	var all sync.WaitGroup
	for i := range c.sidecars {
		all.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for took[i] < time.Minute {
				is, err := so(i)
				took[i], problems[i] = time.Since(since), err
				if is && err == nil {
					return
				}
				<-tick.C
			}
			problems[i] = fmt.Errorf("not there after a minute, the last error is %w", problems[i])
		})
	}
	all.Wait()
	for i, err := range problems {
		if err != nil {
			c.t.Fatalf("%s on sidecar %d: %v", what, i, err)
		}
	}
	return slices.Max(took)
}

// round makes a user and a key, and changes them in four ways. Each sidecar has decided by the state before each
// change, so that it knows it.
func (c *changes) round() (took []time.Duration) {
	c.t.Helper()
	user, doomed, key := fmt.Sprintf("user-%d", c.made), fmt.Sprintf("doomed-%d", c.made), fmt.Sprintf("key-%d", c.made)
	c.made++
	c.must("PUT", "/v1/domains/api/users/"+user, map[string]any{"tier": "small"})
	c.must("PUT", "/v1/domains/api/blocks/user/"+doomed, map[string]any{})
	secret, _ := c.must("POST", "/v1/domains/api/keys",
		map[string]any{"id": key, "user": doomed}).body["secret"].(string)
	limit := func(want uint32) func(int) (bool, error) {
		return func(sidecar int) (bool, error) {
			got, err := c.decides(sidecar, user)
			return got == want, err
		}
	}
	refused := func(want bool) func(int) (bool, error) {
		return func(sidecar int) (bool, error) {
			got, err := c.refuses(sidecar, secret)
			return got == want, err
		}
	}
	c.everywhere("the tier", time.Now(), limit(1_000_000))
	c.everywhere("the key", time.Now(), refused(true))
	for _, step := range []struct {
		method, path string
		body         any
		so           func(int) (bool, error)
	}{
		{"PUT", "blocks/user/" + user, map[string]any{}, limit(0)},
		{"DELETE", "blocks/user/" + user, nil, limit(1_000_000)},
		{"PUT", "users/" + user, map[string]any{"tier": "large"}, limit(2_000_000)},
		{"DELETE", "keys/" + key, nil, refused(false)},
	} {
		began := time.Now()
		c.must(step.method, "/v1/domains/api/"+step.path, step.body, "If-Match", "*")
		took = append(took, c.everywhere(step.method+" "+step.path, began, step.so))
	}
	return took
}

// during makes rounds, at least one, until they are enough, and prints how long changes took.
func (c *changes) during(what string, enough func() bool) {
	c.t.Helper()
	took := c.round()
	for !enough() {
		took = append(took, c.round()...)
	}
	slices.Sort(took)
	at := func(part float64) time.Duration { return took[int(part*float64(len(took)-1))].Round(time.Millisecond) }
	c.t.Logf("%s: %d changes on %d sidecars, until the slowest decides by it: p50 %v, p99 %v, most %v", what, len(took),
		len(c.sidecars), at(0.5), at(0.99), at(1))
	if c.bounds && at(0.99) > time.Second {
		c.t.Errorf("%s: p99 is %v, want at most a second", what, at(0.99))
	}
}

// loads begins to load users. What it returns is closed when they are in the database, and when they are in Redis.
func (c *changes) loads() (stored, there chan struct{}) {
	c.t.Helper()
	began := time.Now()
	stored, there = make(chan struct{}), make(chan struct{})
	body, to := io.Pipe()
	go func() {
		w := bufio.NewWriter(to)
		fmt.Fprintln(w, "name,quota_hour,tier")
		for n := range c.load {
			fmt.Fprintf(w, "load-%07d,%d,small\n", n, n+1)
		}
		w.Flush()
		to.Close()
	}()
	go func() {
		defer close(there)
		r, err := http.Post(c.controls[0].URL+"/v1/domains/api/users:load", "text/csv", body)
		inDatabase := time.Since(began)
		close(stored)
		if err != nil {
			c.t.Error(err)
			return
		}
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			c.t.Errorf("the load answers %s: %s", r.Status, text)
			return
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for c.size() < c.load {
			<-tick.C
		}
		c.t.Logf("%d users were in the database after %v, and in Redis %v later", c.load,
			inDatabase.Round(time.Millisecond), (time.Since(began) - inDatabase).Round(time.Millisecond))
	}()
	return stored, there
}

// size is how many keys Redis has.
func (c *changes) size() int {
	n, _ := strconv.Atoi(fmt.Sprint(c.redis.Do(c.t, "DBSIZE")))
	return n
}

// empty kills Redis, starts an empty one, and waits until a user that is blocked is refused again, and all profiles are
// back.
func (c *changes) empty() {
	c.t.Helper()
	c.must("PUT", "/v1/domains/api/blocks/user/zoe", map[string]any{})
	blocked := func(sidecar int) (bool, error) {
		got, _ := c.decides(sidecar, "zoe") // without Redis it is an error, or what the sidecar knows
		return got == 0, nil
	}
	c.everywhere("the block", time.Now(), blocked)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	// the control names loaded users in the record
	for c.query(`SELECT count(*) FROM users WHERE identity IS NULL`) > 0 {
		<-tick.C
	}
	all := int(c.query(`SELECT (SELECT count(*) FROM users) + (SELECT count(*) FROM api_keys)`))
	c.redis.Kill(c.t)
	c.redis.Start(c.t)
	began, before := time.Now(), c.busy()
	key := recordKeys.Profile("api", "user", "zoe")
	servers.Await(c.t, "the block in Redis", func() error {
		if c.redis.Do(c.t, "GET", key) == nil {
			return fmt.Errorf("%d profiles are back", c.size())
		}
		return nil
	})
	block := time.Since(began)
	strangers := c.everywhere("the limits of users that no sidecar knew", began, c.knows(20))
	servers.Await(c.t, "all profiles in Redis", func() error {
		if n := c.size(); n < all {
			return fmt.Errorf("%d of %d", n, all)
		}
		return nil
	})
	took, busy := time.Since(began), c.busy()-before
	c.everywhere("the block", time.Now(), blocked)
	rate := float64(all) / busy.Seconds()
	c.t.Logf("an empty Redis had the blocks %v after it came back, and all %d profiles after %v and %v of processors: "+
		"%.0f in a second of one", block.Round(time.Millisecond), all, took.Round(time.Millisecond), busy, rate)
	c.t.Logf("users that no sidecar knew and that send requests had their limits again after %v",
		strangers.Round(time.Millisecond))
	if c.bounds && strangers > 5*time.Second {
		c.t.Errorf("users that send requests had their limits again after %v, want at most 5 s", strangers)
	}
	if c.bounds && rate < 1_000_000/(5*2) {
		c.t.Errorf("%.0f profiles were put back in a second of one processor, want at least 100,000", rate)
	}
}

// knows asks sidecars about some of the users that were loaded, until each has its limits. They are of the second half,
// whose quotas are not spent by it.
func (c *changes) knows(some int) func(sidecar int) (bool, error) {
	next := make([]int, len(c.sidecars))
	return func(sidecar int) (bool, error) {
		for next[sidecar] < some {
			limit, _ := c.decides(sidecar, fmt.Sprintf("load-%07d", c.load-1-next[sidecar]*(c.load/2)/some))
			if limit == 0 { // an error, too: Redis may not be there yet
				return false, nil
			}
			next[sidecar]++
		}
		return true, nil
	}
}

// busy is the time of processors that the control, PostgreSQL and Redis have used.
func (c *changes) busy() (all time.Duration) {
	c.t.Helper()
	postgres := strconv.Itoa(c.postgres.Pid())
	own := []string{strconv.Itoa(c.controls[0].Process.Process.Pid), strconv.Itoa(c.redis.Pid()), postgres}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		c.t.Fatalf("the processes cannot be listed: %v", err)
	}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
		if fields[1] != postgres && !slices.Contains(own, strings.Split(name, "/")[2]) {
			continue
		}
		for _, field := range fields[11:15] { // in user mode, in the kernel, and both of children that have ended
			ticks, _ := strconv.Atoi(field)
			all += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return all
}

// TestAClusterIsFilled puts profiles on a Redis Cluster, where each is in a slot of its own, and empties one of its
// masters, and then all.
func TestAClusterIsFilled(t *testing.T) {
	users := 500
	if full {
		users = 20_000
	}
	w := &world{t: t, postgres: servers.StartPostgres(t)}
	cluster := servers.StartCluster(t)
	w.controls = []*servers.Control{servers.StartControl(t, "CONTROL_DATABASE_URL="+w.postgres.URL,
		"REDIS_TYPE=cluster", "REDIS_URL="+strings.Join(cluster.Addrs(), ","))}
	w.do(`INSERT INTO domains (name, created_by) VALUES ('api', 'test')`)
	w.do(addProbe, 1, users)
	masters := cluster.Masters(t)
	filled := func() error {
		all := 0
		for _, m := range masters {
			n, _ := strconv.Atoi(fmt.Sprint(m.Do(t, "DBSIZE")))
			all += n
		}
		if all < users {
			return fmt.Errorf("%d of %d", all, users)
		}
		return nil
	}
	servers.Await(t, "all profiles", filled)
	for _, emptied := range [][]*servers.Redis{masters[:1], masters} {
		for _, m := range emptied {
			m.Do(t, "FLUSHALL")
		}
		began := time.Now()
		servers.Await(t, "all profiles again", filled)
		t.Logf("%d masters of a cluster were emptied, and all %d profiles were there %v later", len(emptied), users,
			time.Since(began).Round(time.Millisecond))
	}
}
