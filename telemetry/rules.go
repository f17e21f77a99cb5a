package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillway-mesh/spillway/engine"
)

// RuleCounters counts for one rule what became of the requests on which it had the last word, and how often it was
// decided without the store. Labels are looked up when rules are loaded, never for a request.
type RuleCounters struct {
	labels   ruleLabels
	decided  [engine.Outcomes]atomic.Int64
	traced   [engine.Outcomes]atomic.Pointer[prometheus.Exemplar] // the newest decision of which a trace is kept
	degraded words
	over     prometheus.Counter
}

// ruleLabels are what rules are told apart by. All come from the configuration.
type ruleLabels struct{ domain, rule, scope string }

// rules holds the counters of all rules.
type rules struct {
	mu    sync.RWMutex // guards known
	known map[ruleLabels]*RuleCounters
}

// Rule returns the counters of a rule. An empty rule is for requests of the domain that no rule decided, and
// an empty domain for those without a domain that is known.
func (t *Telemetry) Rule(domain, rule, scope string) *RuleCounters {
	of := ruleLabels{clean(domain), clean(rule), scope}
	t.rules.mu.Lock()
	defer t.rules.mu.Unlock()
	if found := t.rules.known[of]; found != nil {
		return found
	}
	made := &RuleCounters{labels: of, over: t.overAdmitted.WithLabelValues(of.domain, of.rule)}
	made.degraded.make = func(reason string) prometheus.Counter {
		return t.degraded.WithLabelValues(of.domain, of.rule, reason)
	}
	t.rules.known[of] = made
	return made
}

// Decided counts a request under the rule that had the last word.
func (t *Telemetry) Decided(r *RuleCounters, o engine.Outcome) {
	r.decided[o].Add(1)
	if o == engine.Unknown {
		t.totals.Unknown.Add(1)
	}
	if o == engine.Shadowed {
		t.totals.Shadowed.Add(1)
	}
}

// Traced lets the decisions of a rule lead to the trace of one of them.
func (t *Telemetry) Traced(r *RuleCounters, o engine.Outcome, e *prometheus.Exemplar) {
	r.traced[o].Store(e)
}

// Degraded counts one charge of a rule that was decided without the store.
func (t *Telemetry) Degraded(r *RuleCounters, reason string) { r.degraded.of(reason).Inc() }

// Requests are how many requests of a domain were decided, and how many of these were refused.
func (t *Telemetry) Requests(domain string) (all, refused int64) {
	t.rules.mu.RLock()
	defer t.rules.mu.RUnlock()
	domain = clean(domain)
	for of, rule := range t.rules.known {
		if of.domain != domain {
			continue
		}
		for o := range rule.decided {
			all += rule.decided[o].Load()
		}
		refused += rule.decided[engine.Refused].Load() + rule.decided[engine.Blocked].Load()
	}
	return all, refused
}

// ruleStats is what became of the requests on which a rule had the last word.
type ruleStats struct {
	Domain  string             `label:"domain"`
	Rule    string             `label:"rule"`
	Scope   string             `label:"scope"`
	Decided map[string]counted `metric:"decisions_total" label:"outcome" help:"Requests, by outcome and what decided."`
}

// counted is a number that leads to the trace of what it last counted, if there is one.
type counted struct {
	n     int64
	trace *prometheus.Exemplar
}

// stats are those of all rules that have decided something.
func (r *rules) stats() []ruleStats {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := []ruleStats{}
	for of, rule := range r.known {
		one := ruleStats{of.domain, of.rule, of.scope, map[string]counted{}}
		for o := range rule.decided {
			if n := rule.decided[o].Load(); n > 0 {
				one.Decided[engine.Outcome(o).String()] = counted{n, rule.traced[o].Load()}
			}
		}
		if len(one.Decided) > 0 {
			all = append(all, one)
		}
	}
	return all
}

// words are counters by one of few words. A word is looked up by its labels once.
type words struct {
	make  func(word string) prometheus.Counter
	known atomic.Pointer[map[string]prometheus.Counter]
}

// of returns the counter of a word.
func (w *words) of(word string) prometheus.Counter {
	for {
		known := w.known.Load()
		if known != nil {
			if c := (*known)[word]; c != nil {
				return c
			}
		}
		more := map[string]prometheus.Counter{word: w.make(word)}
		if known != nil {
			maps.Copy(more, *known)
		}
		w.known.CompareAndSwap(known, &more)
	}
}
