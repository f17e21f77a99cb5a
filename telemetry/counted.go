package telemetry

import (
	dto "github.com/prometheus/client_model/go"
)

// Decisions is how often a rule had the last word, by outcome.
type Decisions struct {
	Domain, Rule string
	Outcomes     map[string]int64 // without those that never were
}

// Decisions returns the decisions of every rule that decided something. Rules of one name in one domain are added up.
func (t *Telemetry) Decisions() []Decisions {
	all, at := []Decisions{}, map[[2]string]int{}
	for _, one := range t.rules.stats() {
		name := [2]string{one.Domain, one.Rule}
		i, known := at[name]
		if !known {
			i, at[name] = len(all), len(all)
			all = append(all, Decisions{one.Domain, one.Rule, map[string]int64{}})
		}
		for outcome, n := range one.Decided {
			all[i].Outcomes[outcome] += n.n
		}
	}
	return all
}

// Latency is how long calls took.
type Latency struct {
	Count   int64
	Seconds float64 // of all calls together
	Buckets []Bucket
}

// Bucket is how many calls took at most so many seconds.
type Bucket struct {
	Seconds float64
	Count   int64
}

// StoreLatency returns how long the calls took that were sent to the shared store.
func (t *Telemetry) StoreLatency() Latency {
	var m dto.Metric
	err := t.storeLatency.Write(&m)
	if err != nil {
		return Latency{}
	}
	h := m.GetHistogram()
	l := Latency{Count: int64(h.GetSampleCount()), Seconds: h.GetSampleSum()}
	for _, b := range h.GetBucket() {
		l.Buckets = append(l.Buckets, Bucket{b.GetUpperBound(), int64(b.GetCumulativeCount())})
	}
	return l
}

// StoreCalls returns the calls to servers of the shared store: ok, or why one did not decide.
func (t *Telemetry) StoreCalls() map[string]int64 {
	all := map[string]int64{}
	known := t.storeCalls.known.Load()
	if known == nil {
		return all
	}
	for word, counter := range *known {
		var m dto.Metric
		if counter.Write(&m) == nil {
			all[word] = int64(m.GetCounter().GetValue())
		}
	}
	return all
}
