package journal

import (
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// Kind is what names an identity.
type Kind uint8

// The kinds, in the order in which one is chosen for a request.
const (
	NoKind Kind = iota // without an identity
	User
	APIKey
	Tenant
	Address
	folded // Others
	countedKey
	kinds
)

var kindWords = [kinds]string{"", "user", "api_key", "tenant", "ip", "", KeyKind}

// String returns the word before the colon in the name of an identity.
func (k Kind) String() string {
	if k >= kinds {
		return ""
	}
	return kindWords[k]
}

// Decided is one decision. Its texts are copied: they need to be valid only while Note runs.
type Decided struct {
	At       time.Time
	Domain   string
	Outcome  engine.Outcome
	Requests int64 // 1, and 0 where the call only reports what an earlier request cost
	Cost     int64 // of the whole request, from 0
	Kind     Kind
	Identity string // its value, in plain
	Tenant   string // of the request, in plain
	Rules    []Charged
	Key      string // that the request was made with, in plain: the id of an API key, or what a mesh sends as one
	Refused  bool
	Rule     string // that decided, or ""
	Endpoint string
	Latency  time.Duration
	Known    int64   // charges that a remembered refusal answered
	Unknown  int64   // charges that were asked of the store, because none did
	Event    *Detail // what the event of this decision shows besides; nil: it becomes none
}

// Detail is what an event shows besides usage.
type Detail struct {
	Weight     int64 // how many decisions it counts for
	Method     string
	KeyID      bool   // the key of the decision is known to be an id
	IP         string // in plain
	Count      int64
	Limit      int64
	Status     int
	RetryAfter time.Duration
}

// Charged is what one rule was charged for a request.
type Charged struct {
	Rule string
	Cost int64
}

// maxNoted is how many rules of one request cost no memory.
const maxNoted = 4

// Observe takes in the verdict on a request, which has its times.
func (j *Journal) Observe(req *descriptors.Request, v *engine.Verdict) {
	d := Decided{
		At: v.Began, Domain: req.Domain, Outcome: v.Outcome, Latency: max(v.Took-v.Waited, 0),
		Refused: v.Outcome.Refuses() && v.Outcome != engine.Shadowed,
	}
	var rules [maxNoted]Charged
	d.Requests, d.Cost, d.Rules = charges(req, v, rules[:0])
	if d.Requests == 0 && d.Cost == 0 {
		return // hits were given back
	}
	if v.Effect != nil {
		d.Rule = v.Effect.Rule
	}
	d.Known, d.Unknown = remembered(v.Decisions)
	asked := v.Attributes()
	d.Endpoint, d.Key, d.Tenant = asked.Endpoint, asked.APIKey, asked.Tenant
	d.Kind, d.Identity = who(asked)
	event := Detail{}
	if d.Requests > 0 {
		event.Weight = j.collector.weight(v.Outcome.Refuses())
	}
	var address [64]byte
	if event.Weight > 0 || d.Kind == Address {
		event.IP = string(appendAddress(address[:0], asked))
	}
	if d.Kind == Address {
		d.Identity = event.IP
	}
	if event.Weight > 0 {
		event.Status, event.RetryAfter, event.Method = v.HTTPStatus, v.RetryAfter, asked.Method
		event.KeyID = req.Subject != nil // over the rate limit service the mesh may send the key itself
		event.Count, event.Limit = decider(v, v.Effect)
		d.Event = &event
	}
	j.collector.note(&d)
}

// remembered returns how many charges a remembered refusal answered, and how many went to the store.
func remembered(decisions []limit.Decision) (known, unknown int64) {
	for i := range decisions {
		switch d := &decisions[i]; {
		case d.Cached:
			known++
		case !d.Held:
			unknown++
		}
	}
	return known, unknown
}

// who returns the first identity that is known. That of an address is not made yet.
func who(a *descriptors.Asked) (Kind, string) {
	switch {
	case a.User != "":
		return User, a.User
	case a.APIKey != "":
		return APIKey, a.APIKey
	case a.Tenant != "":
		return Tenant, a.Tenant
	case a.Address.IsValid() || a.AddressText != "":
		return Address, ""
	}
	return NoKind, ""
}

// appendAddress appends the text of an address, or of a network where the mesh masks it.
func appendAddress(b []byte, a *descriptors.Asked) []byte {
	switch {
	case !a.Address.IsValid():
		return append(b, a.AddressText...)
	case a.Address.IsSingleIP():
		return a.Address.Addr().AppendTo(b)
	}
	return a.Address.AppendTo(b)
}

// decider returns what the counter of the limit that decided holds, and what it may hold.
func decider(v *engine.Verdict, effect *descriptors.Effect) (count, most int64) {
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if v.Match.Terms[i].Effect == effect && i != v.Match.Gate-1 && d.Remaining >= 0 {
			most = v.Match.Charges[i].Limit.Capacity()
			return max(most-d.Remaining, 0), most
		}
	}
	return 0, 0
}

// charges returns whether a request asked for admission (1), what it cost as a whole, and what each rule was charged,
// in the memory of rules. A cost that is known only after the request counts when it is reported, and what was taken in
// advance does not.
func charges(req *descriptors.Request, v *engine.Verdict, rules []Charged) (requests, cost int64, _ []Charged) {
	// the cost of an earlier request; asks for admission; a charge is not in shadow
	reports, admits, enforced := false, false, false
	for i := range v.Decisions {
		if i == v.Match.Gate-1 {
			continue
		}
		t, c := &v.Match.Terms[i], &v.Match.Charges[i]
		asked, taken := costOf(t, c, &v.Decisions[i])
		later := c.Op == limit.Debit || c.Op == limit.Refund
		reports, admits = reports || later, admits || !later
		if c.Mode != limit.Shadow {
			enforced, cost = true, max(cost, asked)
		}
		rules = charge(rules, t.Effect.Rule, taken)
	}
	if reports && !admits {
		return 0, cost, rules
	}
	if !enforced {
		cost = int64(min(max(req.Hits, 1), limit.MaxCost))
	}
	return 1, cost, chargeNothing(rules, v)
}

// chargeNothing adds the rules that applied and charge nothing.
func chargeNothing(rules []Charged, v *engine.Verdict) []Charged {
	for i := range v.Match.Unlimited {
		rules = charge(rules, v.Match.Unlimited[i].Effect.Rule, 0)
	}
	if v.Match.Block != nil || v.Match.Exempt != nil {
		rules = charge(rules, v.Effect.Rule, 0)
	}
	return rules
}

// costOf returns what a charge asks for, and what was taken for it.
func costOf(t *descriptors.Term, c *limit.Charge, d *limit.Decision) (asked, taken int64) {
	switch {
	case c.Op == limit.Peek, c.Op == limit.Spend && t.Effect.Reserve > 0:
		return 0, 0
	case c.Op == limit.Refund && t.Settled == 0:
		return 0, 0
	case c.Op == limit.Refund:
		return t.Settled - c.Cost, max(t.Settled-c.Cost, 0)
	}
	return c.Cost + t.Settled, max(d.Charged+t.Settled, 0)
}

// charge adds what a rule was charged. Of several limits of a rule the largest counts.
func charge(rules []Charged, rule string, cost int64) []Charged {
	if rule == "" {
		return rules
	}
	for i := range rules {
		if rules[i].Rule == rule {
			rules[i].Cost = max(rules[i].Cost, cost)
			return rules
		}
	}
	return append(rules, Charged{Rule: rule, Cost: cost})
}
