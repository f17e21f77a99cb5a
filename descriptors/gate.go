package descriptors

import (
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// gate asks whether a client is in a cool-down of its domain's penalty. It is a charge beside those of the rules: one
// that takes nothing, on a counter that never has a state, so that only the penalty can refuse it. The counters of the
// rules may live elsewhere than the client's record, so none of them can carry it.
type gate struct {
	rule    compiledRule // its scope is ScopeClient
	effect  *Effect
	penalty *limit.Penalty
	tail    string // of its key, from the end of the identity
	record  string // of the penalty's key, likewise
}

// gateLimit never has room: a peek of nothing passes, and a spend is refused at once, without a wait.
var gateLimit = limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Window: time.Hour}

// addGate compiles the penalty of the domain.
func (c *CompiledDomain) addGate(p *Penalty) {
	if p == nil {
		return
	}
	head := ":" + ScopeClient.String() + ":" + RulePenalty
	c.gate = &gate{
		rule: compiledRule{scope: ScopeClient}, penalty: p.compile(),
		effect: &Effect{Name: "penalty", Rule: RulePenalty, Scope: ScopeClient.String(), Measure: Measure{Penalty: p},
			Metric: []string{"rule", RulePenalty}},
		tail: head + limitTail(gateLimit, 0), record: head + ":penalty:pn",
	}
	c.effects = append(c.effects, c.gate.effect)
}

// refusable reports whether a rule applies that can refuse: one of the charges from there on, or of the unlimited
// limits. Nothing refuses a refund, a charge afterwards, or what is only logged.
func (m *Match) refusable(charges, unlimited int) bool {
	for i := charges; i < len(m.Charges); i++ {
		c := &m.Charges[i]
		if c.Mode != limit.Shadow && (c.Op == limit.Spend || c.Op == limit.Peek) {
			return true
		}
	}
	return len(m.Unlimited) > unlimited
}

// chargeGate adds the question whether the client is in a cool-down, if it is known who that is.
func (d *CompiledDomain) chargeGate(req *Request, m *Match) {
	s, g := &m.scratch, d.gate
	if !s.attrs.has(attrClient) || req.trusted()&ScopeClient == 0 {
		return
	}
	d.appendRuleHead(s, &g.rule, nil)
	headed := len(s.key)
	s.key = append(s.key, g.record...)
	charge := limit.Charge{Limit: gateLimit, Op: limit.Peek, Penalty: g.penalty, PenaltyKey: string(s.key)}
	s.key = append(s.key[:headed], g.tail...)
	charge.Key = string(s.key)
	m.addCharge(Term{Effect: g.effect, Descriptor: s.attrs.reports(ScopeClient), Metric: g.effect.Metric}, charge)
	m.Gate = len(m.Charges)
}

// domainPenalty checks the penalty of a domain.
func (c *checker) domainPenalty(d *Domain) {
	if d.Penalty == nil {
		return
	}
	c.penaltyNumbers(d.Pos, d.Penalty, "the domain")
	if len(d.Rules)+len(d.Users)+len(d.Tenants)+len(d.Keys) == 0 && d.Defaults == nil && !c.incomplete[d.Name] {
		c.warn(d.Pos, "the penalty of the domain has no effect: it counts refusals by rules, and there are none: "+
			"add rules")
	}
}
