package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
)

// RedisConfig sets up a Redis. The zero value works, against a server on this machine.
type RedisConfig struct {
	fleet.Servers                // where counts are kept
	PerSecond     *fleet.Servers // where those of limits with a window of at most a second are kept; nil: with the others

	Budget      time.Duration // a server that owes replies and sends nothing for so long is silent; default 10 ms, and at least four times its usual reply time
	Patience    time.Duration // longest wait of one decision while replies flow; default 100 ms, and never above 80 % of what is left to the caller
	MaxInFlight int           // calls under way to one server at most, whatever it was seen to do; default 8192. Further ones are undecided at once

	DenialEntries int              // spent counters remembered; default 100,000, negative: none
	DenialBytes   int64            // memory that they take at most; 0: no bound
	Now           func() time.Time // default time.Now; only differences count

	Leases bool // tokens of hot counters are held, and spent without asking; false: every charge is made on a server

	Heartbeat string // key under which the sidecars that share this store count each other; empty: they do not

	Breaker breaker.Config // of the breaker in front of each shard; the zero value has one. OnBreaker takes the place of its OnChange

	// Caller names who asks, such as a connection: under overload none of them takes the turns of the others. It is called only then.
	// Nil, or an empty name: that is not known.
	Caller func(ctx context.Context) string

	OnError   func(reason string, err error)                            // called for each call that stayed undecided, with one of the reasons; must not block
	OnPanic   func(fault any)                                           // see fleet.Config
	OnBreaker func(shard string, from, to breaker.State, reason string) // called for each change of a shard's breaker; must not block

	// OnTrip is called before each call to a server, with the server's name and the number of charges. What it returns, unless
	// nil, is called when the call is over, with the reason why it stayed undecided or nothing. Neither may block.
	OnTrip func(ctx context.Context, shard string, charges int) (ended func(reason string))

	// OnCall is called after each call to a server, with the server's name, why it stayed undecided or nothing, and how long it
	// took. It must not block.
	OnCall func(shard, reason string, took time.Duration)
}

// RedisStats is what a Redis counts about itself.
type RedisStats struct {
	Trips         int64 // calls of the script that were sent
	Undecided     int64 // of these, or instead of these: calls without a decision
	Unknown       int64 // of the undecided: calls that may have charged all the same, because the connection was lost with the reply
	Late          int64 // of the undecided: calls whose reply came after all
	ScriptsLoaded int64 // calls that found the server without the script and brought it along
	Healed        int64 // counters that held a foreign value, and were deleted
	NotReturned   int64 // tokens of refused requests that could not be given back; time gives them back

	DenialEntries   int64 // spent counters remembered now
	DenialHits      int64 // charges refused without asking
	DenialMisses    int64 // charges that were looked up and not refused so
	DenialQuestions int64 // denials that were known and asked about again, one per second and counter at most
	DenialDrops     int64 // spent counters forgotten before their time, because there were more than DenialEntries or DenialBytes allow
	DenialBytes     int64 // memory that the remembered ones take, estimated from above

	LeaseKeys      int64 // counters that tokens are held of now
	LeaseTokens    int64 // tokens that are held now
	LeaseDecisions int64 // charges decided by what is held, without a trip
	LeaseAsks      int64 // calls of the script that lends
	LeaseGranted   int64 // tokens lent by the servers
	LeaseReturned  int64 // tokens returned to them
	LeaseExpired   int64 // tokens that died here: they count as spent
	LeaseDrops     int64 // hot counters of which nothing is held, because there is no place
	LeaseRefusals  int64 // refusals by a bucket that had enough tokens, but had lent them

	Fleet fleet.Stats // of the connections to all servers

	Shards []ShardStats // one for each server that calls go to, as far as known
}

// ShardStats is what is known about one server.
type ShardStats struct {
	Name    string        // its address, or the name of the master
	Breaker breaker.Stats // of the breaker in front of it
}

// Redis keeps counts on Redis servers, shared by all who use them. Time is the server's. It is safe for concurrent use.
//
// It answers in time whatever the servers do, and starts without them. While a server fails, a breaker keeps
// calls away from it: they are undecided at once, and other servers are not touched by that. A reply that comes too late for its
// caller is still read, and resolves the decisions' Pending. In front is a cache of denials: a counter that is spent is not asked
// again before it can have something to give.
type Redis struct {
	main     *fleet.Fleet
	second   *fleet.Fleet // of limits with a window of at most a second; nil: main
	patience time.Duration
	dialing  time.Duration
	caller   func(ctx context.Context) string // nil: not known
	onError  func(reason string, err error)
	denials  *denials  // nil: none
	holdings *holdings // nil: none
	now      func() time.Time
	scratch  sync.Pool // *trip
	pulse    pulse
	heart    *heart // nil: none
	foreign  foreign

	onTrip func(ctx context.Context, shard string, charges int) (ended func(reason string)) // nil: nothing is called
	onCall func(shard, reason string, took time.Duration)

	closed     atomic.Bool
	background errands // what goes on after the answer

	trips       atomic.Int64
	undecided   atomic.Int64
	unknown     atomic.Int64
	late        atomic.Int64
	loaded      atomic.Int64
	notReturned atomic.Int64
}

// NewRedis sets up the store and returns at once: it connects in the background.
func NewRedis(c RedisConfig) *Redis {
	c = c.withDefaults()
	r := &Redis{patience: c.Patience, dialing: c.DialTimeout, caller: c.Caller, onError: c.OnError, onTrip: c.OnTrip, onCall: c.OnCall, now: c.Now}
	r.main = fleet.New(c.fleet(c.Servers, ""))
	if c.PerSecond != nil {
		r.second = fleet.New(c.fleet(*c.PerSecond, "per-second "))
	}
	if c.DenialEntries > 0 {
		r.denials = newDenials(c.DenialEntries, c.DenialBytes, c.Now)
	}
	if c.Leases {
		r.holdings = newHoldings(r, c.Now)
	}
	r.scratch.New = func() any { return &trip{out: new(outbound)} }
	if c.Heartbeat != "" {
		r.heart = newHeart(r.main, c.Heartbeat, r.beatFailed)
	}
	return r
}

// Defaults of RedisConfig that are not those of package fleet.
const (
	defaultPatience = 100 * time.Millisecond
	defaultReset    = 500 * time.Millisecond
)

func (c RedisConfig) withDefaults() RedisConfig {
	c.Patience = max(positive(c.Patience, defaultPatience), c.Budget)
	c.DialTimeout = positive(c.DialTimeout, defaultReset)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnError == nil {
		c.OnError = func(string, error) {}
	}
	if c.OnCall == nil {
		c.OnCall = func(string, string, time.Duration) {}
	}
	if c.DenialEntries == 0 {
		c.DenialEntries = defaultDenialEntries
	}
	return c
}

// fleet is how these servers are reached. The scripts are brought along on each new connection.
func (c *RedisConfig) fleet(s fleet.Servers, prefix string) fleet.Config {
	scripts := []string{limit.TightScript, limit.BatchScript, limit.LeanScript, limit.Script}
	if c.Leases {
		scripts = append(scripts, limit.LeaseScript)
	}
	var prelude [][]string
	for _, text := range scripts {
		prelude = append(prelude, []string{"SCRIPT", "LOAD", text})
	}
	return fleet.Config{
		Servers: s, Prefix: prefix,
		Bounds:  fleet.Bounds{Silence: c.Budget, Patience: c.Patience, InFlight: int64(c.MaxInFlight)},
		Prelude: prelude,
		Breaker: c.Breaker, OnBreaker: c.OnBreaker, OnPanic: c.OnPanic,
	}
}

// positive is n, or the default when n is not set.
func positive[T int | time.Duration](n, otherwise T) T {
	if n <= 0 {
		return otherwise
	}
	return n
}

// Ready waits until calls can be sent to every server, or it is known that they cannot, or the context ends.
func (r *Redis) Ready(ctx context.Context) {
	r.main.Ready(ctx)
	if r.second != nil {
		r.second.Ready(ctx)
	}
}

// Spend decides all charges, all or nothing as package limit says, and fills decisions, which must be as long as charges. That is one call
// of one script where all counters live together, else one for each place, at the same time. A charge that its server could not
// decide in time is Undecided with its Reason. What is known to be spent is refused without a call. That the caller hangs up does not
// interrupt it; the deadline does.
func (r *Redis) Spend(ctx context.Context, charges []limit.Charge, decisions []limit.Decision) {
	if len(charges) == 0 {
		return
	}
	t := r.scratch.Get().(*trip)
	t.charges, t.decisions = charges, decisions
	if r.holdings == nil || !r.holdings.spend(ctx, t) {
		r.strictly(ctx, t)
	}
	if r.holdings != nil {
		r.holdings.endGuard(t)
		r.holdings.tellUndecided(charges, decisions)
	}
	r.scratch.Put(t.reset())
}

// strictly decides a request by the servers, and by what they are known to refuse.
func (r *Redis) strictly(ctx context.Context, t *trip) {
	if r.denials == nil {
		r.ask(ctx, t, t.charges, false, t.decisions)
	} else {
		r.spendBehindDenials(ctx, t)
	}
	if r.holdings != nil {
		r.holdings.saw(t.charges, t.decisions)
	}
}

// Usage answers what is left on each charge's counter, takes nothing, and always asks the server. What is held on lease here is left.
func (r *Redis) Usage(ctx context.Context, charges []limit.Charge, decisions []limit.Decision) {
	if len(charges) == 0 {
		return
	}
	t := r.scratch.Get().(*trip)
	t.asked = peeks(t.asked[:0], charges)
	r.ask(ctx, t, t.asked, false, decisions)
	if r.holdings != nil {
		r.holdings.addHeld(t.asked, decisions)
	}
	r.scratch.Put(t.reset())
}

// Reset forgets the counters of these keys, which makes them full. It waits as long as a dial may take, not the budget:
// it is an operator's command and repeating it does no harm.
func (r *Redis) Reset(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	within := r.dialing
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline))
	}
	err := unlink(r.main, within, keys)
	if r.second != nil {
		err = errors.Join(err, unlink(r.second, within, keys))
	}
	r.Drop(keys)
	if err != nil {
		return fmt.Errorf("reset %d counters: %w", len(keys), err)
	}
	return nil
}

// unlink removes keys wherever they live, those of one place in one command.
func unlink(f *fleet.Fleet, within time.Duration, keys []string) error {
	type home struct {
		node *fleet.Node
		slot int
	}
	commands := map[home][]string{}
	for _, key := range keys {
		n, slot := f.Place(key)
		at := home{n, slot}
		if commands[at] == nil {
			commands[at] = []string{"UNLINK"}
		}
		commands[at] = append(commands[at], key)
	}
	var all error
	for at, words := range commands {
		_, err := at.node.Ask(within, words[1], words...)
		all = errors.Join(all, err)
	}
	return all
}

// Forget clears the cache of denials and returns what is held. Call it when the rules change: what was spent may have room now.
func (r *Redis) Forget() {
	if r.holdings != nil {
		r.holdings.returnAll()
	}
	if r.denials != nil {
		r.denials.clear()
	}
}

// Stats is what the store has counted so far.
func (r *Redis) Stats() RedisStats {
	s := RedisStats{
		Trips: r.trips.Load(), Undecided: r.undecided.Load(), Unknown: r.unknown.Load(), Late: r.late.Load(), ScriptsLoaded: r.loaded.Load(),
		NotReturned: r.notReturned.Load(), Healed: r.foreign.healed.Load(),
	}
	for _, f := range r.fleets() {
		s.Fleet.Add(f.Stats())
	}
	for _, n := range r.nodes() {
		s.Shards = append(s.Shards, ShardStats{n.Name(), n.Breaker().Stats()})
	}
	if r.holdings != nil {
		r.holdings.stats(&s)
	}
	if r.denials != nil {
		s.DenialEntries, s.DenialHits, s.DenialDrops = r.denials.entries.Load(), r.denials.hits.Load(), r.denials.drops.Load()
		s.DenialQuestions, s.DenialMisses, s.DenialBytes = r.denials.questions.Load(), r.denials.misses.Load(), r.denials.bytes.Load()
	}
	return s
}

// Fleet is how the servers of all limits are reached, for others that keep something beside the counters.
func (r *Redis) Fleet() *fleet.Fleet { return r.main }

// Drop forgets what is known about the counters of these keys, and what is leased of them, because they were changed.
func (r *Redis) Drop(keys []string) {
	for _, key := range keys {
		if r.denials != nil {
			r.denials.forget(key)
		}
		if r.holdings != nil {
			r.holdings.forget(key)
		}
	}
}

// fleets are the one of all limits, and that of limits by the second if there is one.
func (r *Redis) fleets() []*fleet.Fleet {
	if r.second == nil {
		return []*fleet.Fleet{r.main}
	}
	return []*fleet.Fleet{r.main, r.second}
}

// nodes are all servers that are known.
func (r *Redis) nodes() []*fleet.Node {
	var all []*fleet.Node
	for _, f := range r.fleets() {
		all = append(all, f.Nodes()...)
	}
	slices.SortFunc(all, func(a, b *fleet.Node) int { return strings.Compare(a.Name(), b.Name()) })
	return all
}

// Breaker is the state of the breaker that keeps most away.
func (r *Redis) Breaker() breaker.State {
	worst := breaker.Closed
	for _, n := range r.nodes() {
		worst = max(worst, n.Breaker().State())
	}
	return worst
}

// Close ends the connections and waits for what runs in the background. Calls that come later are undecided.
func (r *Redis) Close() error {
	r.closed.Store(true)
	if r.holdings != nil {
		r.holdings.close()
	}
	if r.heart != nil {
		r.heart.stop()
	}
	r.background.stop()
	for _, f := range r.fleets() {
		f.Close()
	}
	if r.heart != nil {
		<-r.heart.done
	}
	return nil
}
