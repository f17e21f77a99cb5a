//go:build full

package exact

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// calm lets callers ask for less than the limit, so that sidecars may hold tokens.
func (x *trial) calm() { x.pace(x.rate() * 3 / 4) }

// press lets them ask for more, so that everything that is admitted beyond the limit shows.
func (x *trial) press() {
	x.turns++
	x.pace(x.twice())
}

// rush lets them ask as fast as they can.
func (x *trial) rush() {
	x.turns++
	x.pace(0)
}

// under lets all callers ask while act runs.
func (x *trial) under(rate int64, act func()) {
	x.turns++
	x.crowd.under(rate, act)
}

// limit is the bound as a rule file writes it.
func (b bound) limit() string {
	text := fmt.Sprintf("count: %d, per: %dms, algorithm: %s", b.count, b.window/1000, b.algorithm)
	if b.algorithm == tokenBucket {
		text += fmt.Sprintf(", burst: %d", b.burst)
	}
	return "{ " + text + " }"
}

// rules is a rule file with a limit per user. While Redis is away everything is refused, so that what is admitted stays
// exact.
func (b bound) rules() string {
	return fmt.Sprintf("domain: %s\non_failure: closed\nrules:\n  - { name: each, scope: user, limit: %s }\n", domain,
		b.limit())
}

// trial is one row: the servers, the callers, and what was found.
type trial struct {
	*testing.T
	row
	bound
	crowd
	redis    *servers.Redis
	file     string   // of the rules
	text     string   // of the rules; "": those of the bound
	env      []string // of all sidecars
	sidecars []*servers.Sidecar
	gone     int64 // local decisions of sidecars that are gone

	limits  []held // what the history is held against; the first is that of the whole
	varies  bool   // no one limiter is the ideal of the whole row
	checks  []func()
	mayFail bool      // calls may go without an answer
	lent    int64     // tokens that were leased
	holds   bool      // sidecars must decide with leases in this row
	steady  bool      // callers ask for twice the limit all the time, so its utilisation is judged
	turns   int64     // how often callers or servers changed what they do
	wall    time.Time // when the row began, with a reading of the monotonic clock
	findings
}

// findings are what a row shows: for the table, and what is wrong.
type findings struct{ notes, problems []string }

// held is a bound and the part of the history that it holds for.
type held struct {
	what string // "": the whole
	bound
	history func() history
}

// begin starts a Redis and the sidecars on the rules of the row.
func (x *trial) begin() {
	x.Helper()
	x.beginOn(servers.StartRedis(x))
}

func (x *trial) beginOn(redis *servers.Redis) {
	x.Helper()
	x.redis = redis
	x.env = append(x.env, "REDIS_URL="+redis.Addr)
	x.launch()
}

// launch starts the sidecars in their environment.
func (x *trial) launch() {
	x.Helper()
	x.file = filepath.Join(x.TempDir(), "exact.yaml")
	if x.text == "" {
		x.text = x.rules()
	}
	x.write(x.text)
	x.env = append(x.env, "RULES="+x.file)
	for range x.n {
		x.join(x.start())
	}
}

// start starts one more sidecar.
func (x *trial) start() *servers.Sidecar {
	x.Helper()
	return servers.StartSidecar(x, x.env...)
}

// write replaces the rule file at once.
func (x *trial) write(rules string) {
	x.Helper()
	next := x.file + ".next"
	err := os.WriteFile(next, []byte(rules), 0o600)
	if err == nil {
		err = os.Rename(next, x.file)
	}
	if err != nil {
		x.Fatalf("write the rules: %v", err)
	}
}

// join adds a sidecar with callers of its own.
func (x *trial) join(s *servers.Sidecar) {
	x.Helper()
	x.sidecars = append(x.sidecars, s)
	x.seats = append(x.seats, newSeat(dial(x, s.GRPC)))
}

// local is the number of decisions that a sidecar made without a call of their own.
func (x *trial) local(s *servers.Sidecar) int64 {
	x.Helper()
	m, err := servers.Scrape(s.Debug)
	if err != nil {
		x.Fatalf("read the metrics: %v", err)
	}
	if n := m.Sum("spillway_panics_total"); n > 0 {
		x.fails("%d panics", n)
	}
	x.lent += m.Sum("spillway_lease_granted_total")
	return m.Sum("spillway_lease_decisions_total")
}

// locals is the sum over all sidecars of the row.
func (x *trial) locals() int64 {
	x.Helper()
	n := x.gone
	for _, s := range x.sidecars {
		n += x.local(s)
	}
	return n
}

// fails notes what is wrong.
func (x *trial) fails(format string, args ...any) {
	x.problems = append(x.problems, fmt.Sprintf(format, args...))
}

// note adds text to the row of the table.
func (x *trial) note(format string, args ...any) {
	x.notes = append(x.notes, fmt.Sprintf(format, args...))
}

// whole is the history of the row.
func (x *trial) whole() history { return x.seen }

// hold adds a bound to judge a part of the history by.
func (x *trial) hold(what string, b bound, part func() history) {
	x.limits = append(x.limits, held{what: what, bound: b, history: part})
}

// pass lets time go by, for callers or a fault to do their work.
func pass(d time.Duration) { <-time.After(d) }
