package descriptors

import "slices"

// held is a rule that wins in its scope under at least one reading of the path. Two are equal when their keys are.
type held struct {
	scope   int // index into CompiledDomain.scopes
	rule    *compiledRule
	pattern *pattern // where it is part of the key
	reading int      // where the endpoint is part of the key and readings count one by one
}

// chooseByReadings chooses for a path that servers may read in different ways. What restricts applies if it matches
// under any reading: the first block, the rules that win under any reading, the highest cost. An allow applies only if
// some allow matches under every reading.
func (d *CompiledDomain) chooseByReadings(req *Request, s *scratch) {
	s.held = s.held[:0]
	var block, allow, cost *candidate
	exempt := true
	usual := s.attrs.text[attrEndpoint]
	for n := range s.readings.choices {
		s.attrs.text[attrEndpoint] = s.readings.at(n)
		d.chooseOnce(req, s)
		block = s.best[d.blocks]
		if block != nil {
			break
		}
		allow = s.best[d.allows]
		exempt = exempt && allow != nil
		cost = dearer(cost, s.best[d.costs])
		d.holdWinners(req, s, n)
	}
	if !exempt {
		allow = nil
	}
	s.attrs.text[attrEndpoint] = usual
	s.best[d.blocks], s.best[d.allows], s.best[d.costs] = block, allow, cost
}

// dearer returns the row of the cost table with the higher cost. No row costs the least.
func dearer(a, b *candidate) *candidate {
	if a == nil || b != nil && b.cost > a.cost {
		return b
	}
	return a
}

// holdWinners adds the rules that win under reading n.
func (d *CompiledDomain) holdWinners(req *Request, s *scratch, n int) {
	have := s.attrs.scope()
	for i, g := range d.scopes {
		if have&g.scope != g.scope {
			continue
		}
		if r, p := d.winner(g, req, s); r != nil {
			s.hold(held{i, r, p, n})
		}
		if c := s.best[g.logOnly]; c != nil {
			s.hold(held{i, c.rule, c.pattern, n})
		}
	}
}

// hold adds a rule unless it is there with the same key.
func (s *scratch) hold(h held) {
	byEndpoint := h.rule.scope&ScopeEndpoint != 0
	if !byEndpoint || !h.rule.endpoint {
		h.pattern = nil
	}
	if !byEndpoint || h.rule.endpoint || !s.readings.apart {
		h.reading = 0
	}
	if !slices.Contains(s.held, h) {
		s.held = append(s.held, h)
	}
}

// chargeHeld adds what the rules that are held in one scope charge.
func (d *CompiledDomain) chargeHeld(req *Request, m *Match, scope int, factor int64) {
	s := &m.scratch
	usual := s.attrs.text[attrEndpoint]
	for _, h := range s.held {
		if h.scope != scope {
			continue
		}
		if h.reading > 0 {
			s.attrs.text[attrEndpoint] = s.readings.at(h.reading)
		}
		d.chargeRule(req, m, h.rule, h.pattern, factor)
		s.attrs.text[attrEndpoint] = usual
	}
}
