package telemetry

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/redis"
)

// Observer returns an observer without rules, which writes to that log.
func (t *Telemetry) Observer(log *slog.Logger) *Observer {
	return &Observer{t: t, log: log, nowhere: t.Rule("", "", "")}
}

// Observer counts and logs what the other rooms report: its methods are their callbacks. It blocks none of them. Make
// one with Telemetry.Observer. It is safe for concurrent use.
type Observer struct {
	t       *Telemetry
	log     *slog.Logger
	nowhere *RuleCounters // of requests without a domain that is known

	found atomic.Pointer[ruleCounters]
	lost  atomic.Pointer[lostStore]
}

// ruleCounters finds what counts a limit or a domain by a pointer, for the rules in use. What is not in it (an
// override, or a rule that was replaced a moment ago) is looked up by its labels.
type ruleCounters struct {
	limits  map[*descriptors.Effect]limitCounters
	domains map[*descriptors.CompiledDomain]domainCounters
}

type limitCounters struct {
	series *Series // nil where its labels depend on the request
	rule   *RuleCounters
}

type domainCounters struct{ none, override *RuleCounters }

// lostStore is the last time the shared store could not decide.
type lostStore struct {
	reason string
	at     time.Time
}

// Use prepares the counters of a rule set, before it is used.
func (o *Observer) Use(set *descriptors.Set) {
	made := &ruleCounters{map[*descriptors.Effect]limitCounters{}, map[*descriptors.CompiledDomain]domainCounters{}}
	for domain, effect := range set.Effects() {
		c := limitCounters{rule: o.t.Rule(domain, effect.Rule, effect.Scope)}
		if !effect.Dynamic {
			c.series = o.t.Series(domain, effect.Metric)
		}
		made.limits[effect] = c
	}
	for _, name := range set.Domains() {
		made.domains[set.Domain(name)] = domainCounters{
			o.t.Rule(name, "", ""), o.t.Rule(name, descriptors.RuleOverride, descriptors.ScopeDescriptor),
		}
	}
	o.found.Store(made)
	o.t.forgetUnused(made)
}

// Verdict counts one request: it is an engine.Observer.
func (o *Observer) Verdict(ctx context.Context, req *descriptors.Request, v *engine.Verdict) {
	rule := o.rule(v.Match.Domain, v.Effect)
	o.t.Decided(rule, v.Outcome)
	if o.t.traced.Load() {
		if e := exemplarOf(ctx); e != nil {
			o.t.Traced(rule, v.Outcome, e)
			leaveExemplar(ctx, e)
		}
	}
	if v.Match.BadLimits > 0 {
		o.t.totals.Bad.Add(int64(v.Match.BadLimits))
	}
	if v.Excess != "" {
		o.t.Exceeded(v.Excess)
	}
	if v.Degraded != "" {
		o.t.StoreAway()
	}
	if v.Match.Domain == nil {
		return
	}
	for i := range v.Decisions {
		o.charge(v, i)
	}
	for i := range v.Match.Unlimited {
		t := &v.Match.Unlimited[i]
		o.t.Count(o.series(v.Match.Domain.Name, t), Hit{Hits: req.Spends(t.Descriptor)})
	}
}

// charge counts charge i of a verdict. Shadow is the rule's own mode: quota mode of the whole sidecar puts charges into
// shadow, too.
func (o *Observer) charge(v *engine.Verdict, i int) {
	t, c, d := &v.Match.Terms[i], &v.Match.Charges[i], &v.Decisions[i]
	if d.Reason != "" {
		o.t.Degraded(o.rule(v.Match.Domain, t.Effect), d.Reason)
	}
	asked, more := c.Asks()
	if !more {
		return
	}
	h := Hit{
		Hits: asked, Charged: d.Charged, Capacity: c.Limit.Capacity(), Left: d.Remaining + d.Charged,
		Over: d.Refused(), Shadow: t.Effect.Shadow(), Cached: d.Cached,
	}
	o.t.Count(o.series(v.Match.Domain.Name, t), h)
}

// OverAdmitted counts a charge that the store refused when its request had been admitted.
func (o *Observer) OverAdmitted(domain *descriptors.CompiledDomain, effect *descriptors.Effect) {
	o.rule(domain, effect).over.Inc()
}

// series finds the counters of a limit under the reference server's names.
func (o *Observer) series(domain string, t *descriptors.Term) *Series {
	if found := o.found.Load(); found != nil && !t.Effect.Dynamic {
		if s := found.limits[t.Effect].series; s != nil {
			return s
		}
	}
	return o.t.Dynamic(domain, t.Metric)
}

// rule finds the counters of the rule that an effect belongs to; nil: of the requests that no rule decided.
func (o *Observer) rule(domain *descriptors.CompiledDomain, effect *descriptors.Effect) *RuleCounters {
	if domain == nil {
		return o.nowhere
	}
	found := o.found.Load()
	if found == nil {
		return o.nowhere
	}
	if effect != nil {
		if c, ok := found.limits[effect]; ok {
			return c.rule
		}
	}
	of, known := found.domains[domain]
	switch {
	case effect == nil && known:
		return of.none
	case effect == nil:
		return o.t.Rule(domain.Name, "", "")
	case known && effect.Rule == descriptors.RuleOverride:
		return of.override
	}
	return o.t.Rule(domain.Name, effect.Rule, effect.Scope)
}

// Panicked counts and logs what a door or the engine recovered.
func (o *Observer) Panicked(fault any) {
	o.t.Panicked()
	o.log.Error("panic, recovered", "panic", fault, "stack", string(debug.Stack()))
}

// Survived counts and logs a panic in the background, which no caller waited for.
func (o *Observer) Survived(fault any) {
	o.t.totals.Panics.Add(1)
	o.log.Error("panic in the background, recovered", "panic", fault, "stack", string(debug.Stack()))
}

// StoreCalled counts and times a call to a server of the shared store, which many requests share. One that was kept
// back is not timed.
func (o *Observer) StoreCalled(_ string, _, _ int, took time.Duration, reason string) {
	sent := true
	switch reason {
	case redis.ReasonBreaker, redis.ReasonDeadline, redis.ReasonOverload, redis.ReasonShutdown:
		sent = false
	}
	o.t.StoreCalled(reason, sent, took)
}

// StoreFailed counts and logs a call to the shared store that brought no decision.
func (o *Observer) StoreFailed(reason string, err error) {
	o.t.StoreFailed(reason)
	if reason == redis.ReasonBreaker {
		return // what made it open is known, and its changes are logged
	}
	o.lost.Store(&lostStore{reason, time.Now()})
	o.log.Warn("redis could not decide; the rules' failure policies do", "reason", reason, "error", err)
}

// BreakerChanged logs a change. What repeats during an outage is thinned like any warning; that it is over never is.
func (o *Observer) BreakerChanged(server string, from, to redis.BreakerState) {
	if to == redis.BreakerClosed {
		o.log.Info("the breaker to redis is closed", "server", server, "was", from.String())
		return
	}
	if to == redis.BreakerOpen {
		o.log.Warn("the breaker to redis is open", "server", server, "was", from.String())
		return
	}
	o.log.Warn("the breaker to redis is half-open", "server", server, "was", from.String())
}

// lostFor is how long a failed decision is reported after the store answers again.
const lostFor = 3 * time.Second

// StoreDegraded returns why the shared store cannot decide: ping returns why it does not answer now, or it failed a
// moment ago for a reason that an answer does not refute. The state of the breaker is added.
func (o *Observer) StoreDegraded(ping func(context.Context) string, state redis.BreakerState) string {
	reason := ping(context.Background())
	if reason == "" {
		reason = o.lately()
	}
	return withBreaker(reason, state)
}

// lately returns why the shared store failed a moment ago, or nothing.
func (o *Observer) lately() string {
	lost := o.lost.Load()
	if lost == nil || time.Since(lost.at) > lostFor || lost.reason == redis.ReasonDial ||
		lost.reason == redis.ReasonClosed {
		return ""
	}
	return lost.reason
}

// withBreaker adds the breaker to why the store is degraded. Without traffic nothing closes a breaker, so one that is
// ready to probe is reported only beside another reason.
func withBreaker(reason string, state redis.BreakerState) string {
	switch {
	case state == redis.BreakerOpen && reason == "":
		return "breaker open"
	case state != redis.BreakerClosed && reason != "":
		return reason + ", breaker " + state.String()
	}
	return reason
}

// KeysLoaded logs what became of a key set. Its source has no passwords.
func (o *Observer) KeysLoaded(source string, keys int, err error) {
	if err != nil {
		o.log.Warn("key set not loaded, the last good keys stay", "source", source, "keys", keys, "error", err)
		return
	}
	o.log.Debug("key set loaded", "source", source, "keys", keys)
}
