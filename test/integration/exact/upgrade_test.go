package exact

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// earlierVersion is the commit of the version before this one, which sidecars of this version share a Redis with during a rollout.
const earlierVersion = "816072b9098d4979c3e74a05803932f3cb68eda4"

// earlier is the sidecar of that version, built once per test process.
var earlier struct {
	sync.Once
	dir string
	err error
}

// earlierBin builds the sidecar of the earlier version from the history of the repository.
func earlierBin(t testing.TB) string {
	t.Helper()
	root := servers.Root(t)
	earlier.Do(func() { earlier.err = buildEarlier(root) })
	if earlier.err != nil {
		t.Fatalf("build the earlier version: %v", earlier.err)
	}
	return filepath.Join(earlier.dir, "earlier")
}

func buildEarlier(root string) (err error) {
	earlier.dir, err = os.MkdirTemp("", "earlier")
	if err != nil {
		return err
	}
	source, archive := filepath.Join(earlier.dir, "source"), filepath.Join(earlier.dir, "source.tar")
	err = os.Mkdir(source, 0o700)
	if err != nil {
		return err
	}
	// The checkout may be that of another user, and may not have the whole history.
	git := func(words ...string) []string {
		return append([]string{"git", "-c", "safe.directory=*", "-C", root}, words...)
	}
	known := git("cat-file", "-e", earlierVersion)
	if exec.Command(known[0], known[1:]...).Run() != nil {
		fetch := git("fetch", "--quiet", "--unshallow")
		_ = exec.Command(fetch[0], fetch[1:]...).Run() // what is still missing fails below
	}
	for _, command := range [][]string{
		git("archive", "--output", archive, earlierVersion),
		{"tar", "-x", "-f", archive, "-C", source},
		{"go", "-C", source, "build", "-buildvcs=false", "-o", filepath.Join(earlier.dir, "earlier"), "./cmd/sidecar"},
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s (it needs the whole history of the repository): %w\n%s", strings.Join(command, " "), err, out)
		}
	}
	return nil
}

// upgraded replaces sidecars of the earlier version by those of this one, one by one under load, as a rollout does.
func upgraded(x *trial) {
	x.mixed = true
	x.rollOut(earlierBin(x), servers.SidecarBin(x))
}

// takenBack replaces sidecars of this version by those of the earlier one.
func takenBack(x *trial) {
	x.mixed = true
	x.rollOut(servers.SidecarBin(x), earlierBin(x))
}

// upgradedFirst is upgraded without leases, which begin after the last sidecar was replaced. The earlier version ignores the variable.
func upgradedFirst(x *trial) { x.rollOut(earlierBin(x), servers.SidecarBin(x), "LEASES=false") }

// rollOut starts all sidecars from one program and replaces them by another.
func (x *trial) rollOut(from, to string, env ...string) {
	x.Helper()
	x.bin, x.env = from, env
	x.begin()
	x.bin = to
	var begin, end int64 // of the time in which both ran
	x.under(x.rate(), func() {
		for i := range x.n {
			x.calm()
			pass(600 * time.Millisecond)
			end = x.now()
			x.rollOver(i)
			if i == 0 {
				begin = x.now()
			}
			x.press()
			pass(600 * time.Millisecond)
		}
	})
	both := x.seen.between(begin, end)
	x.note("while both ran, %d of %d were admitted, and a limit earns %d", both.admitted(), len(both), x.rate()*(end-begin)/1_000_000)
}

// rollOver starts the successor of a sidecar, moves its callers over, and ends it as an orchestrator does.
func (x *trial) rollOver(i int) {
	x.Helper()
	old := x.sidecars[i]
	x.sidecars[i] = x.start()
	x.seats[i].sit(dial(x, x.sidecars[i].GRPC))
	x.gone += x.local(old)
	old.Send(x, syscall.SIGTERM)
	if code := old.Exit(x); code != 0 {
		x.fails("a sidecar that was asked to end ended with %d", code)
	}
}

// pair is a sidecar of each version on one Redis.
type pair struct {
	redis         *servers.Redis
	file          string
	before, after *servers.Sidecar
}

func startPair(t *testing.T, rules string) pair {
	t.Helper()
	p := pair{redis: servers.StartRedis(t), file: filepath.Join(t.TempDir(), "exact.yaml")}
	p.write(t, rules)
	env := []string{"REDIS_URL=" + p.redis.Addr, "RULES=" + p.file, "STORE_BUDGET=1s"}
	p.before = servers.StartProgram(t, earlierBin(t), env...)
	p.after = servers.StartSidecar(t, env...)
	return p
}

func (p pair) write(t *testing.T, rules string) {
	t.Helper()
	err := os.WriteFile(p.file, []byte(rules), 0o600)
	if err != nil {
		t.Fatalf("write the rules: %v", err)
	}
}

// sharedRules has a counter of each algorithm, one with a penalty, and a tree. No window ends while a test runs.
const sharedRules = `domain: exact
on_failure: closed
charge_denied: false
rules:
  - { name: bucket, scope: user, match: { users: [bucket] }, limit: { count: 100, per: 3650d } }
  - { name: fixed, scope: user, match: { users: [fixed] }, limit: { count: 100, per: 3650d, algorithm: fixed_window } }
  - { name: sliding, scope: user, match: { users: [sliding] }, limit: { count: 100, per: 3650d, algorithm: sliding_window } }
  - { name: log, scope: user, match: { users: [log] }, limit: { count: 100, per: 3650d, algorithm: sliding_log } }
  - { name: strict, scope: user, match: { users: [strict] }, limit: { count: 100, per: 3650d }, penalty: { threshold: 50, detection_window: 1h, cool_down: 1m } }
descriptors:
  - key: tenant
    rate_limit: { unit: year, requests_per_unit: 100 }
`

// What a sidecar of one version spends is missing for the other, on the same keys, in both directions and with every algorithm.
func TestVersionsCountOnTheSameKeys(t *testing.T) {
	p := startPair(t, sharedRules)
	before, after := dial(t, p.before.GRPC), dial(t, p.after.GRPC)
	requests := []request{{user: "bucket"}, {user: "fixed"}, {user: "sliding"}, {user: "log"}, {user: "strict"}, {tenant: "tree"}}
	left := int64(100)
	var keys []string
	for step, by := range []*client{before, after, after, before} {
		cost := int64(step + 3)
		left -= cost
		for _, r := range requests {
			r.cost = cost
			if got := by.ask(r); got.outcome != admitted || got.remaining != left {
				t.Errorf("step %d, %s%s: %+v, want admitted with %d left", step+1, r.user, r.tenant, got, left)
			}
			r.cost = 101 // a refusal, which a penalty notes
			if got := by.ask(r); got.outcome != refused {
				t.Errorf("step %d, %s%s: %+v, want refused", step+1, r.user, r.tenant, got)
			}
		}
		now := keysOf(t, p.redis)
		if step == 0 {
			keys = now
		}
		if !slices.Equal(now, keys) || len(now) < len(requests)+1 {
			t.Errorf("step %d: Redis has the keys %q, after the first step %q", step+1, now, keys)
		}
	}
}

// keysOf lists the counters and penalties, but not the heartbeat.
func keysOf(t *testing.T, redis *servers.Redis) []string {
	t.Helper()
	items, _ := redis.Do(t, "KEYS", "rl1:{exact|*").([]any)
	var keys []string
	for _, item := range items {
		keys = append(keys, fmt.Sprint(item))
	}
	slices.Sort(keys)
	return keys
}

// Each version counts the other in the number of live sidecars, by which local shares are made.
func TestVersionsCountEachOther(t *testing.T) {
	p := startPair(t, boundOf(tokenBucket, 2, lean).rules())
	for _, s := range []*servers.Sidecar{p.before, p.after} {
		servers.Await(t, "two live sidecars", func() error {
			m, err := servers.Scrape(s.Debug)
			if err == nil && m.Most("spillway_live_sidecars") != 2 {
				err = fmt.Errorf("it counts %v", m.Most("spillway_live_sidecars"))
			}
			return err
		})
	}
}

// A rule file with a key that the earlier version does not know is refused by it as a whole: it goes on with the rules it has.
func TestEarlierVersionKeepsItsRules(t *testing.T) {
	const old, changed = 100, 70
	rules := func(count int, more string) string {
		return fmt.Sprintf("domain: %s\nrules:\n  - { name: each, scope: user, limit: { count: %d, per: 3650d }%s }\n", domain, count, more)
	}
	p := startPair(t, rules(old, ""))
	p.write(t, rules(changed, ", lease: false"))
	servers.Await(t, "the earlier version to refuse the rules", func() error {
		m, err := servers.Scrape(p.before.Debug)
		if err == nil && m.Most("spillway_config_last_load_successful") != 0 {
			err = errors.New("its last load was good")
		}
		return err
	})
	if got := dial(t, p.before.GRPC).ask(request{user: "a", cost: 1}); got.limit != old {
		t.Errorf("the earlier version answers %+v, want its limit of %d", got, old)
	}
}

// A value in a form that the earlier version does not know stays as it is, and only requests that need it are decided without Redis.
func TestEarlierVersionLeavesOtherFormsAlone(t *testing.T) {
	p := startPair(t, sharedRules)
	c := dial(t, p.before.GRPC)
	c.ask(request{user: "bucket", cost: 1})
	key := keysOf(t, p.redis)[0]
	const other = "\x01a form of a later version"
	p.redis.Do(t, "SET", key, other)
	if got := c.ask(request{user: "bucket", cost: 1}); got.outcome != undecided || got.failure != "wrongtype" {
		t.Errorf("the earlier version answers %+v, want a refusal because of the value", got)
	}
	if got := p.redis.Do(t, "GET", key); got != other {
		t.Errorf("the value is %q now", got)
	}
	if got := c.ask(request{user: "fixed", cost: 1}); got.outcome != admitted {
		t.Errorf("another counter: %+v, want admitted", got)
	}
}

// Variables of a later version do not keep the earlier one from starting.
func TestEarlierVersionStartsWithLaterVariables(t *testing.T) {
	servers.StartProgram(t, earlierBin(t), "LEASES=true")
}
