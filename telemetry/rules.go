package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillway-mesh/spillway/engine"
)

// Rule is the counters of one rule: what became of the requests on which it had the last word, and how often it was
// decided without the store. Labels are looked up when rules are loaded, never for a request.
type Rule struct {
	labels   ruleLabels
	decided  [engine.Outcomes]atomic.Int64
	degraded words
	over     prometheus.Counter
}

// ruleLabels are what rules are told apart by. All come from the configuration.
type ruleLabels struct{ domain, rule, scope string }

// rules holds the counters of all rules and collects them for a scrape.
type rules struct {
	desc  *prometheus.Desc
	mu    sync.RWMutex // guards known
	known map[ruleLabels]*Rule
}

// Rule returns the counters of a rule. An empty rule stands for requests of the domain on which no rule had a say, and
// an empty domain for those without a domain that is known.
func (t *Telemetry) Rule(domain, rule, scope string) *Rule {
	of := ruleLabels{clean(domain), clean(rule), scope}
	t.rules.mu.Lock()
	defer t.rules.mu.Unlock()
	if found := t.rules.known[of]; found != nil {
		return found
	}
	made := &Rule{labels: of, over: t.overAdmitted.WithLabelValues(of.domain, of.rule)}
	made.degraded.make = func(reason string) prometheus.Counter {
		return t.degraded.WithLabelValues(of.domain, of.rule, reason)
	}
	t.rules.known[of] = made
	return made
}

// Decided counts a request under the rule that had the last word.
func (t *Telemetry) Decided(r *Rule, o engine.Outcome) {
	r.decided[o].Add(1)
	if o == engine.Unknown {
		t.totals.Unknown.Add(1)
	}
	if o == engine.Shadowed {
		t.totals.Shadowed.Add(1)
	}
}

// Degraded counts one charge of a rule that was decided without the store.
func (t *Telemetry) Degraded(r *Rule, reason string) { r.degraded.of(reason).Inc() }

// OverAdmitted counts one charge of a rule that the store refused after its request had been admitted.
func (t *Telemetry) OverAdmitted(r *Rule) { r.over.Inc() }

// Describe names the metric.
func (r *rules) Describe(out chan<- *prometheus.Desc) { out <- r.desc }

// Collect sends every counter that has counted something.
func (r *rules) Collect(out chan<- prometheus.Metric) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for of, rule := range r.known {
		for o := range rule.decided {
			n := rule.decided[o].Load()
			if n > 0 {
				out <- prometheus.MustNewConstMetric(r.desc, prometheus.CounterValue, float64(n), of.domain, of.rule,
					of.scope, engine.Outcome(o).String())
			}
		}
	}
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
