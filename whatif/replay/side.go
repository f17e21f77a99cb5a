package replay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/extauthz"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/whatif"
)

// side is one rule set at work.
type side struct {
	paths    []string
	trial    *whatif.Trial
	domain   string
	layout   *layout
	http     extauthz.HTTP
	client   identity.Client
	message  extauthz.Message
	request  descriptors.Request
	verdict  engine.Verdict
	outcomes [engine.Outcomes]int64
	requests int64             // decided so far
	paid     bool              // the rules have limits that are charged when a request is over
	knows    descriptors.Scope // attributes that a request had
	rules    []*tally
	byEffect map[*descriptors.Effect]*tally
	who      *tops
	last     judgement
}

// tally is what one rule did.
type tally struct {
	number      int
	effect      *descriptors.Effect // nil: no rule, as where a request contradicts itself
	counted     int64               // requests
	latest      int64               // number of the last request that it counted
	refused     int64
	shadowed    int64
	met         bool // it exempted or blocked a request, or is unlimited
	first, last time.Time
}

// judgement is what became of the last request.
type judgement struct {
	refused bool
	tally   *tally // of the rule that refused
	key     string // of the counter, or of who else was refused
}

func newSide(t *whatif.Trial, paths []string, l *layout) *side {
	s := &side{trial: t, paths: paths, layout: l, byEffect: map[*descriptors.Effect]*tally{}, who: newTops()}
	for _, e := range t.Rules().Effects() {
		s.paid = s.paid || e.PostPaid()
	}
	return s
}

// decide decides a request, and counts what became of it. What it cost is charged at once to limits that are paid
// afterwards.
func (s *side) decide(rec *record, at time.Time, b *bucket, number int) error {
	s.trial.At(at)
	req := s.asked(rec)
	if s.layout.looked[slotCost] != nil {
		req.Part = descriptors.Coming
		if !s.paid {
			req.Hits = rec.cost
		}
	}
	err := s.trial.Decide(req, &s.verdict)
	if err != nil {
		return err
	}
	s.count(rec, at, b, number)
	if s.paid && !s.last.refused && rec.cost > 0 {
		req.Part, req.Hits = descriptors.Over, rec.cost
		err = s.trial.Decide(req, &s.verdict)
	}
	return err
}

// count counts what became of a request.
func (s *side) count(rec *record, at time.Time, b *bucket, number int) {
	v := &s.verdict
	s.outcomes[v.Outcome]++
	s.requests++
	s.last = judgement{}
	s.meet(&v.Match)
	for i := range v.Match.Terms {
		if i == v.Match.Gate-1 {
			continue
		}
		t := s.tally(v.Match.Terms[i].Effect)
		if t.latest != s.requests { // it may count one request on several counters
			t.latest = s.requests
			t.counted++
		}
		if v.Decisions != nil && i < len(v.Decisions) && t.effect.Mode == limit.Shadow &&
			v.Decisions[i].Outcome == limit.Refused {
			t.shadowed++
			t.saw(at)
		}
	}
	if !v.Refused {
		return
	}
	s.last = s.judge(rec)
	s.last.tally.refused++
	s.last.tally.saw(at)
	s.who.count(s.last.key, at, s.called)
	b.refused[number]++
	b.refuse(number, s.last.tally.number, 1)
}

// meet notes what applied to the last request without counting it, and what was known about the request.
func (s *side) meet(m *descriptors.Match) {
	s.knows |= m.Knows()
	for i := range m.Unlimited {
		s.tally(m.Unlimited[i].Effect).met = true
	}
	for _, e := range []*descriptors.Effect{m.Block, m.Exempt} {
		if e != nil {
			s.tally(e).met = true
		}
	}
}

// judge finds what refused the last request, and whose counter that was.
func (s *side) judge(rec *record) judgement {
	v := &s.verdict
	t := s.tally(v.Refusing)
	if at := refusing(v); at >= 0 {
		return judgement{refused: true, tally: t, key: v.Match.Charges[at].Key}
	}
	who := "user " + rec.values[slotUser]
	if rec.values[slotUser] == "" {
		who = "ip " + rec.peer()
		if v.Client.Address.IsValid() {
			who = "ip " + v.Client.Address.String()
		}
	}
	return judgement{refused: true, tally: t, key: "\x00" + t.name() + "\x00" + who}
}

// refusing is the number of the first charge that refused a request, or -1 where it was none. One limit may have
// several counters.
func refusing(v *engine.Verdict) int {
	for i := range v.Decisions {
		if v.Match.Terms[i].Effect == v.Refusing && v.Decisions[i].Outcome == limit.Refused {
			return i
		}
	}
	return -1
}

// called returns what the one is called who was refused last, and the rule.
func (s *side) called() (who, rule string) {
	rule = s.last.tally.name()
	if strings.HasPrefix(s.last.key, "\x00") {
		return s.last.key[strings.LastIndexByte(s.last.key, 0)+1:], rule
	}
	var parts []string
	for _, e := range s.last.tally.effect.Whose(s.last.key) {
		parts = append(parts, e.Key+" "+e.Value)
	}
	return cmp.Or(strings.Join(parts, ", "), "all"), rule
}

// refusal describes the last request, which was refused.
func (s *side) refusal(rec *record, at time.Time) Refusal {
	who, rule := s.called()
	return Refusal{
		Time: at, Rule: rule, Who: who, Outcome: s.verdict.Outcome.String(),
		Method: rec.values[slotMethod], Path: rec.values[slotPath], RetryAfter: s.verdict.RetryAfter.Seconds(),
	}
}

// tally is what is counted of a rule.
func (s *side) tally(e *descriptors.Effect) *tally {
	t := s.byEffect[e]
	if t == nil {
		t = &tally{number: len(s.rules), effect: e}
		s.byEffect[e] = t
		s.rules = append(s.rules, t)
	}
	return t
}

// saw notes that the rule refused a request, or would have.
func (t *tally) saw(at time.Time) {
	if t.first.IsZero() {
		t.first = at
	}
	t.last = at
}

// name is what the rule is called: its own name, and its limit's where that has another.
func (t *tally) name() string {
	switch e := t.effect; {
	case e == nil:
		return "malformed or too large"
	case e.Account != "":
		return e.Rule + " " + e.Account
	case e.Name == "" || e.Name == e.Rule:
		return e.Rule
	default:
		return e.Rule + "/" + e.Name
	}
}

// named are counts by the names of rules.
func (s *side) named(counts []int64) map[string]int64 {
	names := map[string]int64{}
	for number, n := range counts {
		if n > 0 {
			names[s.rules[number].name()] += n
		}
	}
	return names
}

// report makes the report of the rule set.
func (s *side) report() SideReport {
	stats := s.trial.Stats()
	r := SideReport{
		Paths: s.paths, Hash: s.trial.Load.Hash, Domain: s.domain, Outcomes: map[string]int64{}, Who: s.who.list(),
		WhoIncomplete: s.who.Dropped(),
		Evicted:       stats.Evicted, Rules: []RuleReport{},
	}
	for o, n := range s.outcomes {
		if n > 0 {
			r.Outcomes[engine.Outcome(o).String()] = n
		}
		if engine.Outcome(o).Refuses() {
			r.Refused += n
		}
	}
	for _, t := range s.rules {
		if t.counted+t.refused > 0 {
			r.Rules = append(r.Rules, t.report())
		}
	}
	r.Never = s.never()
	slices.SortStableFunc(r.Rules, func(a, b RuleReport) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Shadowed, a.Shadowed),
			cmp.Compare(a.Rule, b.Rule))
	})
	return r
}

func (t *tally) report() RuleReport {
	r := RuleReport{Rule: t.name(), Counted: t.counted, Refused: t.refused, Shadowed: t.shadowed}
	if t.effect != nil {
		at := t.effect.Origin()
		r.Scope, r.File, r.Line = t.effect.Scope, at.File, at.Line
	}
	if !t.first.IsZero() {
		r.First, r.Last = &t.first, &t.last
	}
	return r
}
