package telemetry

import "slices"

// forgetUnused drops the counters of rules that are not in use any more and that never counted. Without it a source of
// rules whose names change all the time would fill the memory. Those that counted stay: a counter that vanishes would
// look like a restart.
func (t *Telemetry) forgetUnused(now *ruleCounters) {
	rules, series := map[*RuleCounters]bool{}, map[*Series]bool{}
	for _, c := range now.limits {
		rules[c.rule], series[c.series] = true, true
	}
	for _, c := range now.domains {
		rules[c.none], rules[c.override] = true, true
	}
	for _, r := range t.rules.forget(rules) {
		t.overAdmitted.DeleteLabelValues(r.labels.domain, r.labels.rule)
	}
	t.series.forget(series)
}

// forget drops the rules that neither are kept nor counted. It returns those of whom no namesake with another scope is
// left.
func (r *rules) forget(keep map[*RuleCounters]bool) (gone []*RuleCounters) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := map[[2]string]bool{}
	for of, rule := range r.known {
		if of.domain != "" && !keep[rule] && rule.idle() {
			delete(r.known, of)
			gone = append(gone, rule)
			continue
		}
		left[[2]string{of.domain, of.rule}] = true
	}
	return slices.DeleteFunc(gone, func(one *RuleCounters) bool {
		return left[[2]string{one.labels.domain, one.labels.rule}]
	})
}

// idle reports whether a rule never counted anything.
func (r *RuleCounters) idle() bool {
	for i := range r.decided {
		if r.decided[i].Load() != 0 {
			return false
		}
	}
	return r.degraded.known.Load() == nil
}

// forget drops the series that neither are kept nor counted.
func (s *seriesSet) forget(keep map[*Series]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.dynamic {
		keep[one] = true
	}
	for _, one := range s.overflow {
		keep[one] = true
	}
	for key, one := range s.known {
		if !keep[one] && one.total.Load() == 0 && one.over.Load() == 0 {
			delete(s.known, key)
		}
	}
}
