package faults

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	// limitOf is the limit of all keys but those of domain share: so high that no request is refused.
	limitOf = 1_000_000_000
	// tag sets the counters of keys apart: key n starts with n tags used, so what is left identifies the key.
	tag = 10_000
	// shareOf is the limit per second of the keys of domain share, which are asked five times a second.
	shareOf = 2
)

// ruleFiles are three rules, one per failure policy, and a second local one whose limit is small enough to refuse.
func ruleFiles() map[string]string {
	files := map[string]string{}
	for _, policy := range []string{"open", "closed", "local"} {
		files[policy] = fmt.Sprintf("rules: [{name: %s, scope: user, on_failure: %s, limit: {count: %d, per: 3650d, "+
			"algorithm: fixed_window}}]", policy, policy, limitOf)
	}
	files["share"] = fmt.Sprintf("rules: [{name: share, scope: user, on_failure: local, limit: {count: %d, per: 1s, "+
		"algorithm: fixed_window}}]", shareOf)
	files["scarce"] = fmt.Sprintf("rules: [{name: scarce, scope: user, on_failure: local, limit: {count: %d, per: "+
		"3650d, algorithm: fixed_window}}]", scarceOf)
	return files
}

// trial is one run of a row: the servers, the load, and what was seen.
type trial struct {
	*testing.T
	row
	length time.Duration                                // of the fault
	begin  func(testing.TB, ...string) *servers.Sidecar // starts the sidecar; nil: servers.StartSidecar
	leaves bool                                         // callers hang up in this row
	// after the repair the store decides everything from then on; 0: the row does not look at that
	heals   time.Duration
	emptied func(key int) bool // keys whose counters begin anew in this row; nil: none

	redis    *servers.Redis       // nil where the row has servers of its own
	admin    *redis.Client        // straight to redis, past the proxy
	proxy    *servers.Proxy       // between sidecar and redis; nil: none
	counters func() map[int]int64 // reads from the servers what each tagged key has used
	sidecar  *servers.Sidecar
	started  time.Time // just before the sidecar
	load     *load

	moments
	seen   seen
	all    []answer
	wrong  []string // bounds on decisions that do not hold
	missed []string // bounds on time that do not hold
	notes  []string // for the table
}

// moments are what was read at which time.
type moments struct {
	tags   map[int]int64 // what each key had used when the load began
	before metrics       // when the load began
	sick   metrics       // when the fault began
	well   metrics       // when it ended
	calm   metrics       // when all breakers were closed after that
	after  metrics       // when all answers were there
	began  time.Time     // of the fault
	ended  time.Time     // when the servers were well again
}

// fails notes a decision that is wrong.
func (x *trial) fails(format string, args ...any) {
	x.wrong = append(x.wrong, fmt.Sprintf(format, args...))
}

// misses notes a bound on time that does not hold. Only make test-all judges those.
func (x *trial) misses(format string, args ...any) {
	if !full {
		return
	}
	x.missed = append(x.missed, fmt.Sprintf(format, args...))
}

// note adds text to the row of the table.
func (x *trial) note(format string, args ...any) {
	x.notes = append(x.notes, fmt.Sprintf(format, args...))
}

// start brings up a Redis and the sidecar under load.
func (x *trial) start(settings ...string) {
	x.Helper()
	x.startRedis(settings...)
	x.startSidecar("REDIS_URL=" + x.redis.Addr)
	x.settle()
}

// startBehindProxy is start with a proxy between the two, and more environment for the sidecar.
func (x *trial) startBehindProxy(env ...string) {
	x.Helper()
	x.startRedis()
	x.proxy = servers.StartProxy(x, x.redis.Addr)
	x.startSidecar(append(env, "REDIS_URL="+x.proxy.Addr)...)
	x.settle()
}

// startRedis starts a Redis whose counters outlive it.
func (x *trial) startRedis(settings ...string) {
	x.Helper()
	// What a script has written is in the file before its reply leaves, so a killed server loses nothing that it
	// acknowledged.
	x.redis = servers.StartRedis(x, append([]string{"--appendonly", "yes", "--appendfsync", "no"}, settings...)...)
	x.admin = redis.NewClient(&redis.Options{Addr: x.redis.Addr, MaxRetries: -1, PoolSize: 1})
	x.Cleanup(func() { x.admin.Close() })
	x.counters = func() map[int]int64 { return usedBy(x, x.admin) }
}

// startSidecar starts the sidecar on the rules of the matrix with more environment, and the way to ask it.
func (x *trial) startSidecar(env ...string) {
	x.Helper()
	rules := x.TempDir()
	for domain, text := range ruleFiles() {
		err := os.WriteFile(filepath.Join(rules, domain+".yaml"), []byte("domain: "+domain+"\n"+text+"\n"), 0o600)
		if err != nil {
			x.Fatalf("write the rules: %v", err)
		}
	}
	begin := servers.StartSidecar
	if x.begin != nil {
		begin = x.begin
	}
	x.started = time.Now()
	x.sidecar = begin(x, append([]string{"RULES=" + rules}, env...)...)
	x.load = newLoad(x, x.sidecar.GRPC)
}

// settle tags the keys and starts the load.
func (x *trial) settle() {
	x.Helper()
	x.tagKeys()
	x.before = x.scrape()
	x.load.start()
	x.awaitHealth()
}

// tagKeys sets the counters apart. A tag whose first try came late or lost its reply may be there twice.
func (x *trial) tagKeys() {
	x.Helper()
	settled := true
	for key := range keys {
		if domainOf(key) == "share" || key == 0 {
			continue
		}
		servers.Await(x, fmt.Sprintf("the tag of key %d", key), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			a := x.load.ask(ctx, key, uint32(key*tag))
			if !a.counted() || a.code != ratelimitv3.RateLimitResponse_OK {
				settled = false
				return fmt.Errorf("%+v", a)
			}
			return nil
		})
	}
	x.tags = x.counters()
	for !settled {
		pass(1500 * time.Millisecond)
		now := x.counters()
		settled = maps.Equal(now, x.tags)
		x.tags = now
	}
}

// awaitHealth lets the load run until the store has decided everything for a second, or, where time is not judged,
// until the breaker has been closed for a second.
func (x *trial) awaitHealth() {
	x.Helper()
	const degraded = "spillway_degraded_decisions_total"
	for range 20 {
		before := x.scrape()
		pass(time.Second)
		now := x.scrape()
		if (now.sum(degraded) == before.sum(degraded) || !full) && now.most("spillway_breaker_state") == 0 {
			return
		}
	}
	x.fails("no second of good health in twenty")
}

// during lets the fault last, waits until the breaker is closed after the repair and all calls pass again, and ends the
// load. A row that looks at the recovery has some load after it.
func (x *trial) during(begin, repair func()) {
	x.Helper()
	x.sick = x.scrape()
	x.began = time.Now()
	begin()
	pass(x.length - time.Since(x.began))
	repair()
	x.ended = time.Now()
	x.well = x.scrape()
	x.awaitClosed()
	x.calm = x.scrape()
	if x.heals > 0 {
		pass(time.Until(x.healthy().Add(x.watch())))
	}
	x.finish()
}

// lastReplies is how long a sidecar may take to read what the store has answered, and to return what it has on lease.
var lastReplies = either(500*time.Millisecond, 2*time.Second)

// finish ends the load and gathers what the bounds are about.
func (x *trial) finish() {
	x.Helper()
	x.all = x.load.end()
	x.counters() // the store answers, so it has done all that it got before, and sends those replies next
	pass(lastReplies)
	x.after = x.scrape()
	x.gather()
}

// awaitClosed notes when the breaker is closed, and gives up after 30 seconds.
func (x *trial) awaitClosed() {
	x.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for time.Since(x.ended) < 30*time.Second {
		if x.scrape().most("spillway_breaker_state") == 0 {
			x.seen.closed = time.Since(x.ended)
			return
		}
		<-tick.C
	}
	x.fails("the breaker is not closed 30 s after the repair")
}

// pass lets time go by, for a load or a fault to do its work.
func pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

var keyNumber = regexp.MustCompile(`\bk(\d+)\b`)

// usedBy reads from a server what each tagged key has used, its tag included.
func usedBy(t testing.TB, client redis.Cmdable) map[int]int64 {
	t.Helper()
	used := map[int]int64{}
	ctx := context.Background()
	all, err := client.Keys(ctx, "rl1:*").Result()
	if err != nil {
		t.Fatalf("list the counters: %v", err)
	}
	for _, name := range all {
		number := keyNumber.FindStringSubmatch(name)
		if number == nil {
			continue // no counter of the load
		}
		key, _ := strconv.Atoi(number[1])
		if domainOf(key) == "share" {
			continue
		}
		used[key], err = client.Get(ctx, name).Int64()
		if err != nil {
			t.Fatalf("read the counter %s: %v", name, err)
		}
	}
	return used
}
