package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// scenario is all that a seed decides before a simulation begins.
type scenario struct {
	seed     uint64
	kind     string // of the topology
	sidecars int
	lasts    time.Duration // of load and faults; calm follows
	latency  time.Duration // of each way
	domains  []*domain
	loads    []loadPlan
	faults   []fault
}

// domain is rules with one failure policy: one for the counter that is judged, and one that counts each request by an
// address of its own.
type domain struct {
	name      string
	policy    string // local, open or closed
	algorithm string
	count     int64
	burst     int64
	window    time.Duration
	lease     bool
	changes   []int64 // counts that take the place of count, one after the other; the same algorithm
	users     int
	hot       bool // tokens are leased
	check     bool // asked by ext_authz, which knows users by their addresses

	special   string        // paid, throttled or punished; empty: none of these
	reserve   int64         // of paid: what a request takes in advance; 0: nothing
	delay     time.Duration // of throttled: the longest that an answer is held
	threshold int           // of punished: refusals within detection that start a cool-down
	detection time.Duration
	coolDown  time.Duration
}

// stream is the generator of one part of a simulation. The parts do not disturb each other.
func (s *scenario) stream(part uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, part)) }

// Parts of a simulation that have a generator each.
const (
	ofScenario = iota
	ofNetwork
	ofFaults
	ofBreakers = 10 + iota
	ofLoads    = 100
	ofMoves    = 1 << 40
)

func newScenario(seed uint64) *scenario {
	s := &scenario{seed: seed}
	r := s.stream(ofScenario)
	s.kind = pick(r, single, single, sentinel, cluster)
	s.sidecars = 2 + r.IntN(7)
	s.lasts = time.Duration(12+r.IntN(10)) * time.Second
	s.latency = time.Duration(pick(r, 100, 300, 1000, 2000, 3000)) * time.Microsecond
	for i, policy := range []string{"local", "open", "closed"} {
		s.domains = append(s.domains, newDomain(r, i, policy))
	}
	s.domains = append(s.domains, newDomain(r, 3, pick(r, "local", "open", "closed")))
	checked := newDomain(r, 4, pick(r, "local", "open", "closed"))
	checked.check = true
	s.domains = append(s.domains, checked)
	s.domains = append(s.domains, newSpecial(r, s.seed))
	if r.IntN(3) > 0 { // a counter that is asked so often that its tokens are leased
		s.sidecars = 2 + r.IntN(2)
		hot := newDomain(r, 6, pick(r, "local", "open", "closed"))
		hot.heat(r)
		s.domains = append(s.domains, hot)
		s.loads = append(s.loads, hotLoads(r, hot)...)
	}
	for _, d := range s.domains[:6] {
		s.loads = append(s.loads, newLoads(r, d)...)
	}
	for i := range s.loads {
		s.loads[i].number = i
	}
	s.faults = newFaults(s, s.stream(ofFaults))
	return s
}

func newDomain(r *rand.Rand, number int, policy string) *domain {
	d := &domain{
		name: fmt.Sprintf("d%d", number), policy: policy,
		algorithm: pick(r, "token_bucket", "token_bucket", "fixed_window", "sliding_window", "sliding_log"),
		count:     pick[int64](r, 10, 30, 60, 100, 150),
		window:    pick(r, time.Second, time.Second, 2*time.Second, 5*time.Second),
		lease:     r.IntN(3) > 0, users: pick(r, 1, 1, 2, 5),
	}
	d.burst = d.count
	if d.algorithm == "token_bucket" {
		d.burst = max(1, d.count*pick[int64](r, 1, 5, 10, 20)/10)
	}
	if r.IntN(4) == 0 {
		for range 1 + r.IntN(3) {
			d.changes = append(d.changes, pick[int64](r, 10, 40, 80, 120))
		}
	}
	return d
}

// heat makes the limit one that is leased from.
func (d *domain) heat(r *rand.Rand) {
	d.algorithm = pick(r, "token_bucket", "token_bucket", "fixed_window", "sliding_window")
	d.count, d.window, d.lease, d.changes, d.users = pick[int64](r, 300, 500), time.Second, true, nil, 1
	d.burst, d.hot = d.count, true
	if d.algorithm == "token_bucket" {
		d.burst = pick[int64](r, 200, 300, 500)
	}
}

// hotLoads are calls below the limit, from which leases are taken, and rushes that take all that is left.
func hotLoads(r *rand.Rand, d *domain) []loadPlan {
	size := float64(max(d.burst, d.count)) * (0.9 + 0.3*r.Float64())
	rate := float64(d.count) * (0.4 + 0.5*r.Float64())
	return []loadPlan{
		{domain: d, kind: "open", rate: rate, deadline: -1, ids: r.Float64() / 20},
		{domain: d, kind: "rush", rate: size, deadline: 200 * time.Millisecond, after: r.IntN(3) > 0},
	}
}

// most is the limit that no moment of the simulation exceeds. When the rate of a bucket changes, the time until it is
// full stays, not the tokens: each unit of that time may be as many tokens as the highest rate brings.
func (d *domain) most() (count, burst int64) {
	count, burst = d.count, d.burst
	for _, n := range d.changes {
		count, burst = max(count, n), max(burst, n)
	}
	if len(d.changes) > 0 {
		burst = max(count, (count*d.burst+d.count-1)/d.count)
	}
	return count, burst
}

// loadPlan is one group of callers.
type loadPlan struct {
	domain   *domain
	kind     string
	rate     float64       // calls a second of an open loop, or calls of one rush
	deadline time.Duration // 0: none; -1: of each call another one
	ids      float64       // part of the calls that have an address of their own
	leave    float64       // part of the callers that hang up
	peeks    float64
	costs    bool
	after    bool // a rush begins when the window has ended, not before
	number   int
	next     int // addresses so far; guarded by world.mu
}

// newLoads makes what comes to one domain: a counter that is kept empty, rushes, clients that come back
// after retry-after, refunds.
func newLoads(r *rand.Rand, d *domain) []loadPlan {
	ideal := float64(d.count) / d.window.Seconds() * float64(d.users)
	switch {
	case d.special == "throttled":
		rate := min(ideal*(0.5+1.5*r.Float64()), 60)
		return []loadPlan{{domain: d, kind: "open", rate: rate, deadline: -1, leave: r.Float64() / 4}}
	case d.special != "":
		return []loadPlan{{domain: d, kind: d.special, rate: float64(3 + r.IntN(8)), deadline: -1}}
	case d.check:
		return []loadPlan{
			{domain: d, kind: "open", rate: min(ideal*(1.2+r.Float64()), 60), deadline: -1, leave: r.Float64() / 10},
			{domain: d, kind: "rush", rate: float64(10 + r.IntN(20)), deadline: 200 * time.Millisecond},
		}
	}
	return usualLoads(r, d, ideal)
}

func usualLoads(r *rand.Rand, d *domain, ideal float64) []loadPlan {
	all := []loadPlan{
		{
			domain: d, kind: "open", rate: min(ideal*(0.4+1.8*r.Float64()), 130), deadline: -1, ids: r.Float64() / 2,
			leave: r.Float64() / 10, peeks: r.Float64() / 10, costs: r.IntN(3) == 0,
		},
		{domain: d, kind: "polite", deadline: -1},
	}
	if r.IntN(3) > 0 {
		deadline := pick(r, 20*time.Millisecond, 200*time.Millisecond, 0)
		size := min(float64(max(d.count, d.burst))*(0.7+r.Float64()), 200)
		all = append(all, loadPlan{domain: d, kind: "rush", rate: size, deadline: deadline, after: r.IntN(2) == 0})
	}
	if r.IntN(2) == 0 {
		deadline := pick(r, 20*time.Millisecond, 50*time.Millisecond, 0)
		all = append(all, loadPlan{
			domain: d, kind: "closed", rate: float64(1 + r.IntN(6)), deadline: deadline, ids: r.Float64() / 4,
		})
	}
	if r.IntN(3) == 0 && d.algorithm != "sliding_log" {
		all = append(all, loadPlan{domain: d, kind: "refund", rate: 5 + 10*r.Float64(), deadline: 0})
	}
	if r.IntN(3) == 0 {
		all = append(all, loadPlan{domain: d, kind: "many", rate: 5 + 20*r.Float64(), deadline: -1, ids: 1})
	}
	return all
}

// deadlines are those of callers, from Envoy's shortest in use to none.
var deadlines = []time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	200 * time.Millisecond, time.Second, 0,
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (d *domain) String() string {
	text := fmt.Sprintf("%s: fails %s, %s of %d (burst %d) in %v, lease %t, changes %v, %d users",
		d.name, d.policy, d.algorithm, d.count, d.burst, d.window, d.lease, d.changes, d.users)
	return text + d.extra()
}

// String is the scenario without its faults, which the trace has.
func (s *scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, %d sidecars, %v of load, %v each way, %d faults\n",
		s.seed, s.kind, s.sidecars, s.lasts, s.latency, len(s.faults))
	for _, d := range s.domains {
		fmt.Fprintf(&b, "  %v\n", d)
	}
	for _, l := range s.loads {
		fmt.Fprintf(&b, "  %s: %s, %.0f calls, deadline %v, addresses %.2f, hang up %.2f, peeks %.2f, costs %t\n",
			l.domain.name, l.kind, l.rate, l.deadline, l.ids, l.leave, l.peeks, l.costs)
	}
	return b.String()
}
