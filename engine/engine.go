// Package engine decides: match, spend once, fold to one verdict; shadow and quota mode of the whole sidecar, each rule's
// failure policy where the store could not answer, and the charge-back when it can again.
package engine

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// Counter keeps counts. It fills decisions[i] for charges[i]; one that it could not decide stays Undecided with a reason.
type Counter interface {
	// Spend decides all charges of one request at once.
	Spend(ctx context.Context, charges []limit.Charge, decisions []limit.Decision)
	// Usage fills in what is left without charging anything.
	Usage(ctx context.Context, charges []limit.Charge, decisions []limit.Decision)
	// Reset makes the counters of these keys full again.
	Reset(ctx context.Context, keys []string) error
}

// holder is a Counter that decides some charges by tokens that it holds: their decisions are Held. It tells by count what was spent so, later and in sums,
// but before it leaves a charge on the same counter undecided.
type holder interface {
	OnHeld(count func(c limit.Charge, n int64))
}

// Config says how an Engine decides. Store is required.
type Config struct {
	Store Counter // the truth
	// Fallback decides for rules with the failure policy `local` while Store cannot. It also counts what Store charges for
	// them, to begin with that. Nil: they fail open.
	Fallback Counter
	// Live is how many sidecars with rules for a domain share Store, as last known: Fallback hands out that part of a limit. Of an empty
	// domain it is how many sidecars share Store. It is called for each request that Fallback counts, and must not block. Nil, or less
	// than 1, means 1.
	Live func(domain string) int
	// Debts is for how many counters Store may be owed at once what Fallback admitted; 0 means 100,000. What is beyond is
	// counted and not charged back: all of it where Debts is negative.
	Debts int
	// DebtBytes is how much memory they may take; 0: no bound.
	DebtBytes int64
	// ReservedBytes is how much memory the reservations of post-paid requests may take; 0: no bound.
	ReservedBytes int64
	Shadow        bool // the whole sidecar counts and refuses nothing
	Quota         bool // every descriptor of a tree is in quota mode
	Waiters       int  // throttled requests that may wait at once; 0 means 10,000. Further ones are refused unless they are due
	Now           func() time.Time
	Records       Records // what is known about identities beside the rules; nil: nothing
	// Hold, where given, takes the place of waiting for a throttled request's token, on clocks that are not the machine's. Verdicts have that
	// wait as Waited. Nil: the answer is held in real time.
	Hold func(wait time.Duration)
	// OnVerdict sees every verdict before its door does. It must not block nor keep what it is handed.
	OnVerdict func(req *descriptors.Request, v *Verdict)
	// OnOverAdmitted is called for each charge that the store refused after its request had been admitted, because the reply came too
	// late. It must not block.
	OnOverAdmitted func(domain *descriptors.CompiledDomain, effect *descriptors.Effect)
	// OnPanic sees what was recovered. The request is answered all the same.
	OnPanic func(recovered any)
}

// Engine decides requests under the rule set in use. It is safe for concurrent use.
type Engine struct {
	cfg   Config
	set   atomic.Pointer[descriptors.Set]
	queue queue
	debts ledger

	reserved reservations
	sums     bool // the store tells sums of what it decides by tokens that are held

	unreturned atomic.Int64 // charges that could not be given back
}

// New returns an Engine without rules: until Use every domain is unknown, which admits.
func New(cfg Config) *Engine {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnVerdict == nil {
		cfg.OnVerdict = func(*descriptors.Request, *Verdict) {}
	}
	if cfg.OnOverAdmitted == nil {
		cfg.OnOverAdmitted = func(*descriptors.CompiledDomain, *descriptors.Effect) {}
	}
	if cfg.OnPanic == nil {
		cfg.OnPanic = func(any) {}
	}
	if cfg.Waiters <= 0 {
		cfg.Waiters = defaultWaiters
	}
	if cfg.Debts == 0 {
		cfg.Debts = defaultDebts
	}
	if cfg.DebtBytes <= 0 {
		cfg.DebtBytes = math.MaxInt64 / classShare
	}
	if cfg.ReservedBytes <= 0 {
		cfg.ReservedBytes = math.MaxInt64 / classShare
	}
	e := &Engine{cfg: cfg, queue: newQueue(cfg.Waiters)}
	e.debts = ledger{engine: e, start: cfg.Now(), debts: make(map[string]*debt), room: newRoom(int64(cfg.Debts), cfg.DebtBytes), stop: make(chan struct{})}
	if h, ok := cfg.Store.(holder); ok {
		h.OnHeld(e.mirrorHeld)
		e.sums = true
	}
	e.reserved = reservations{held: make(map[string]*reserved), room: newRoom(maxReserved, cfg.ReservedBytes)}
	return e
}

// Close ends what runs in the background, and waits for it. What is still owed to the store is forgotten.
func (e *Engine) Close() error {
	e.debts.close()
	return nil
}

// Use makes set the rule set in use, for all requests that begin from now on.
func (e *Engine) Use(set *descriptors.Set) { e.set.Store(set) }

// Rules returns the rule set in use, or nil before the first Use.
func (e *Engine) Rules() *descriptors.Set { return e.set.Load() }

// Decide fills v with what req gets. It always decides: trouble is answered by the failure policy of the rules that
// matched, and by admission where none had matched yet. A panic of OnVerdict leaves the verdict as it is.
func (e *Engine) Decide(ctx context.Context, req *descriptors.Request, v *Verdict) {
	v.reset(len(req.Descriptors))
	var counts bool
	if !e.guard(func() { counts = e.match(ctx, req, v) }) {
		v.reset(len(req.Descriptors))
		v.Match = descriptors.Match{}
		v.Degraded = "panic"
	}
	if !e.guard(func() { e.decide(ctx, v, counts) }) {
		e.despite(v)
	}
	e.guard(func() { e.cfg.OnVerdict(req, v) })
}

// guard calls f and reports whether f returned. It is the one place in this package that recovers from a panic.
func (e *Engine) guard(f func()) (returned bool) {
	defer func() {
		if r := recover(); r != nil {
			e.cfg.OnPanic(r)
		}
	}()
	f()
	return true
}

// decide fills the verdict on what matched, and makes the charges if it counts.
func (e *Engine) decide(ctx context.Context, v *Verdict, counts bool) {
	if counts && len(v.Match.Charges) > 0 {
		e.boundWaits(ctx, v)
		e.spend(ctx, v)
		e.countTurned(v)
		e.punish(ctx, v)
	}
	e.fold(v)
	e.wait(ctx, v)
	e.reserve(v)
	e.follow(v)
}

// match finds what applies, and reports whether charges for it are to be made.
func (e *Engine) match(ctx context.Context, req *descriptors.Request, v *Verdict) (counts bool) {
	if req.Excess != "" {
		v.Match.Reset()
		return !v.exceeds(req.Excess)
	}
	set := e.set.Load()
	if set == nil {
		v.Match = descriptors.Match{}
		return false
	}
	if !identify(ctx, set, req, v) {
		return false
	}
	e.consult(ctx, set, req, v)
	set.Match(req, &v.Match)
	if v.Match.LongPath && v.exceeds(excessPath) || tooMany(v.Match.Charges) && v.exceeds(excessCharges) {
		return false
	}
	v.Decisions = resize(v.Decisions, len(v.Match.Charges))
	return v.Match.Block == nil && v.Match.Exempt == nil
}

// identify resolves the evidence of a request into its subject, under the rules of its domain, and reports whether the
// request can be decided on. One that contradicts itself is refused for that.
func identify(ctx context.Context, set *descriptors.Set, req *descriptors.Request, v *Verdict) bool {
	if req.Evidence == nil || req.Subject == nil {
		return true
	}
	domain := set.Domain(req.Domain)
	if domain == nil {
		return true
	}
	client, refusal := identity.Client{Address: req.Evidence.Peer, AddressTrusted: req.Evidence.Peer.IsValid()}, (*identity.Refusal)(nil)
	if domain.Identity != nil {
		client, refusal = domain.Identity.ResolveWithin(ctx, req.Evidence)
	}
	req.Subject.Client, v.Client = client, client
	if refusal == nil {
		refusal = req.Subject.Check()
	}
	if refusal == nil {
		return true
	}
	v.Match.Reset()
	v.Match.Known = true
	v.Refused, v.Malformed = true, refusal
	return false
}

// spend asks the store, and decides by the failure policies what the store could not.
func (e *Engine) spend(ctx context.Context, v *Verdict) {
	e.setQuotas(v)
	e.settle(v)
	if !e.ask(ctx, e.cfg.Store, v.Match.Charges, v.Decisions) {
		for i := range v.Decisions {
			v.Decisions[i] = limit.Decision{Reason: "panic", Unknown: true}
		}
	}
	v.observeTime()
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Undecided {
			e.degrade(ctx, v)
			break
		}
	}
	e.mirror(ctx, v)
}

// observeTime lets the domain know what time it is at the store, where a limit's windows are those of a calendar.
func (v *Verdict) observeTime() {
	for i := range v.Decisions {
		if v.Match.Charges[i].Limit.Calendar != nil && v.Decisions[i].At != 0 {
			v.Match.Domain.ObserveTime(v.Decisions[i].At)
			return
		}
	}
}

// ask is one call to a Counter, and reports false when it panicked.
func (e *Engine) ask(ctx context.Context, c Counter, charges []limit.Charge, decisions []limit.Decision) (ok bool) {
	return e.guard(func() { c.Spend(ctx, charges, decisions) })
}

// setQuotas sees to quotas that always have room: beside one of them no other can refuse the request.
func (e *Engine) setQuotas(v *Verdict) {
	if e.cfg.Quota {
		quotaMode(v)
		return
	}
	if !slices.ContainsFunc(v.Match.Terms, func(t descriptors.Term) bool { return t.Effect.QuotaToo }) {
		return
	}
	for i := range v.Match.Charges {
		if v.Match.Charges[i].Mode == limit.Quota {
			v.Match.Charges[i].Mode = limit.Shadow
		}
	}
}

// quotaMode puts all descriptors of trees into quota mode. One that nothing limits, or only in shadow, always has room,
// and so no other can refuse the request: their refusals then count as shadow, though they are still reported.
func quotaMode(v *Verdict) {
	v.markTrees()
	mode := limit.Quota
	for d := range v.Statuses {
		if !v.Statuses[d].tree {
			mode = limit.Shadow
			break
		}
	}
	for i, t := range v.Match.Terms {
		if t.Effect.Tree && t.Effect.Mode != limit.Shadow {
			v.Match.Charges[i].Mode = mode
		}
	}
}

// markTrees marks the descriptors that a tree can refuse, or lets pass without limit, which quota mode leaves out. A scoped rule that is
// unlimited says nothing about them.
func (v *Verdict) markTrees() {
	for _, t := range v.Match.Terms {
		if t.Descriptor >= 0 && t.Effect.Tree && t.Effect.Mode != limit.Shadow {
			v.Statuses[t.Descriptor].tree = true
		}
	}
	for _, t := range v.Match.Unlimited {
		if t.Descriptor >= 0 && t.Effect.Tree {
			v.Statuses[t.Descriptor].tree = true
		}
	}
}
