package descriptors

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/limit"
)

// compiledRule is a scoped rule, or the limits that a user, tenant or API key has of its own.
type compiledRule struct {
	scope    Scope
	limits   []ruleLimit
	verdict  *Effect // of a block or allow
	cost     int64   // 0: the cost table decides
	postPaid bool
	reserve  int64 // 0: none
	endpoint bool  // names endpoints, so an endpoint scope counts by pattern
	specific bool  // names more than a tier, so it wins over a user's or tenant's own limits
	tier     bool
	login    bool // asks whether a user is known
	priority int

	clientKey   string         // the API key whose own limits these are, in place of the user in its keys
	maxWait     time.Duration  // of a throttle
	penalty     *limit.Penalty // nil: none
	penaltyTail string         // of its key, from the end of the identity
}

// ruleLimit is one limit of a rule.
type ruleLimit struct {
	effect    *Effect
	unlimited bool
	tail      string // of its key, from the end of the identity
	calendar  *calendar
}

func (d *CompiledDomain) compileRule(r *Rule) *compiledRule {
	c := &compiledRule{
		scope: r.Scope, cost: r.Cost, postPaid: r.PostPaid, reserve: r.Reserve, priority: r.Priority,
		endpoint: len(r.Match.Endpoints) > 0, specific: r.Match.specific(), tier: len(r.Match.Tiers) > 0,
		login: r.Match.Authenticated != nil,
	}
	base := Effect{
		Name: r.Name, Rule: r.Name, Action: r.Action, OnFailure: r.OnFailure.or(d.onFailure), Reserve: r.Reserve,
		Response: r.Response,
		Measure:  Measure{Reason: r.Reason, Until: r.Until, MaxDelay: r.MaxDelay, Penalty: r.Penalty},
		Metric:   []string{"rule", r.Name},
		compiled: compiled{from: origin{rule: r}, lease: r.Lease.most()},
	}
	if r.HasScope {
		base.Scope = r.Scope.String()
	}
	if r.Action == LogOnly {
		base.Mode = limit.Shadow
	}
	if r.Action == Throttle {
		c.maxWait = r.MaxDelay
	}
	if r.Action == Block || r.Action == Allow {
		c.verdict = &base
		return c
	}
	name := string(keys.AppendPart(nil, r.Name))
	c.addPenalty(r.Penalty, name)
	d.addLimits(c, r.Limits, base, name)
	return c
}

// addPenalty compiles a penalty. Its key ends in a word that is not an algorithm, so a limit's key never ends like it.
func (c *compiledRule) addPenalty(p *Penalty, keyName string) {
	if p == nil {
		return
	}
	c.penalty = p.compile()
	c.penaltyTail = ":" + c.scope.String() + ":" + keyName + ":penalty:pn"
}

func (p *Penalty) compile() *limit.Penalty {
	compiled := &limit.Penalty{
		Threshold: int64(p.Threshold), Window: p.DetectionWindow, CoolDown: p.CoolDown, DryRun: p.DryRun,
	}
	for _, m := range p.Multipliers {
		compiled.Multipliers = append(compiled.Multipliers, int64(m))
	}
	if len(p.Multipliers) == 0 {
		compiled.Multipliers = []int64{1}
	}
	return compiled
}

// penalizes reports whether a penalty can refuse the operation. Some are never refused.
func (c *compiledRule) penalizes(op limit.Op) bool {
	return c.penalty != nil && (op == limit.Spend || op == limit.Peek)
}

// The kinds of accounts, which are what their limits are called.
const (
	accountUser   = "user"
	accountTenant = "tenant"
	accountKey    = "key"
)

// compileAccount compiles the limits that a user, tenant or API key (kind) has of its own, or returns nil when it has
// none. Their rule in the key starts with a reserved ~, because a rule may be called "user" as well.
func (d *CompiledDomain) compileAccount(a *Account, scope Scope, kind string) *compiledRule {
	if len(a.Limits) == 0 {
		return nil
	}
	limits := slices.Clone(a.Limits)
	for i := range limits {
		if a.Burst > 0 && limits[i].Algorithm.HasBurst() {
			limits[i].Burst = a.Burst
		}
	}
	c := &compiledRule{scope: scope}
	if kind == accountKey {
		c.clientKey = a.Name
	}
	base := Effect{Name: kind, Rule: kind, Scope: scope.String(), Account: a.Name, OnFailure: d.onFailure,
		Metric: []string{"rule", kind}, compiled: compiled{lease: Lease(0).most()}}
	d.addLimits(c, limits, base, "~"+kind)
	return c
}

func (d *CompiledDomain) addLimits(c *compiledRule, limits []Limit, base Effect, keyName string) {
	for i := range limits {
		l, effect := &limits[i], base
		if l.Name != "" {
			effect.Name = l.Name
		}
		if len(limits) > 1 {
			effect.Metric = append(slices.Clone(base.Metric), limitLevel(l, i))
		}
		effect.setLimit(l)
		effect.from.limit = l
		tail := ":" + c.scope.String() + ":" + keyName + limitTail(l.Limit, i)
		c.limits = append(c.limits, ruleLimit{effect: &effect, unlimited: l.Unlimited, tail: tail,
			calendar: d.calendarOf(l.CalendarUnit)})
	}
}

// limitLevel distinguishes the limits of one rule in metrics.
func limitLevel(l *Limit, place int) string {
	if l.Name != "" {
		return l.Name
	}
	return strconv.Itoa(place + 1)
}

// setLimit takes over a limit and how it is reported. An unlimited one leaves the zero Limit.
func (e *Effect) setLimit(l *Limit) {
	if l.Unlimited {
		return
	}
	e.Limit, e.Calendar = l.Limit, l.CalendarUnit
	e.Unit, e.Multiplier = l.Unit, max(l.Multiplier, 1)
	if l.Unit == UnitUnknown {
		e.Unit, e.Multiplier = reportUnit(l.Window)
	}
}

// specific reports whether the conditions name more than a tier.
func (c *Conditions) specific() bool {
	return len(c.Endpoints) > 0 || c.names()
}

func (c *Conditions) names() bool {
	return len(c.Users) > 0 || len(c.Tenants) > 0 || len(c.CIDRs) > 0 || len(c.Entries) > 0 || len(c.Methods) > 0
}

// candidates returns the conditions as candidates, one per endpoint pattern. The patterns were checked before.
func (x *index) candidates(c *Conditions) []*candidate {
	asks := [dimensions][]int32{
		dimMethod: x.ids(dimMethod, covered(c.Methods)), dimUser: x.ids(dimUser, c.Users),
		dimTenant: x.ids(dimTenant, c.Tenants), dimTier: x.ids(dimTier, c.Tiers),
	}
	for _, network := range c.CIDRs {
		asks[dimNetwork] = append(asks[dimNetwork], x.network(network))
	}
	if c.Authenticated != nil {
		asks[dimAuthenticated] = []int32{x.name(dimAuthenticated, strconv.FormatBool(*c.Authenticated))}
	}
	slices.Sort(asks[dimNetwork])
	asks[dimNetwork] = slices.Compact(asks[dimNetwork])
	for _, key := range slices.Sorted(maps.Keys(c.Entries)) {
		asks[dimEntry] = append(asks[dimEntry], x.entry(Entry{key, c.Entries[key]}))
	}
	if len(c.Endpoints) == 0 {
		return []*candidate{{asks: asks, headAlone: c.headAlone()}}
	}
	var all []*candidate
	for _, text := range c.Endpoints {
		p, err := parsePattern(text.Text)
		if err != nil {
			continue
		}
		p = x.pattern(p)
		asks[dimEndpoint] = []int32{p.term}
		all = append(all, &candidate{asks: asks, pattern: p, headAlone: c.headAlone(), at: text.Pos})
	}
	return all
}

func (x *index) ids(d dimension, names []string) []int32 {
	var ids []int32
	for _, name := range names {
		ids = append(ids, x.name(d, name))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// covered returns the methods of requests that conditions with these methods are about: GET covers HEAD, which servers
// answer by the same work.
func covered(methods []string) []string {
	all := make([]string, len(methods), len(methods)+1)
	for i, method := range methods {
		all[i] = NormalizeMethod(method)
	}
	if slices.Contains(all, http.MethodGet) {
		all = append(all, http.MethodHead)
	}
	return all
}

// headAlone reports whether the conditions are about HEAD and not because of GET.
func (c *Conditions) headAlone() bool {
	all := covered(c.Methods)
	return slices.Contains(all, http.MethodHead) && !slices.Contains(all, http.MethodGet)
}

// comparisons order candidates of one scope from the most to the least specific, each where those before it see no
// difference. What they are called follows "the other one".
var comparisons = [...]struct {
	what string
	of   func(a, b *candidate) int
}{
	{"names an endpoint", func(a, b *candidate) int { return first(a.pattern != nil, b.pattern != nil) }},
	{"has an endpoint pattern that is more specific", func(a, b *candidate) int {
		return comparePatterns(a.pattern, b.pattern)
	}},
	{"names more kinds of users, tenants, cidrs, entries and methods", func(a, b *candidate) int {
		return cmp.Compare(b.kinds(), a.kinds())
	}},
	{"names a tier", func(a, b *candidate) int { return first(a.rule.tier, b.rule.tier) }},
	{"asks whether a user is known", func(a, b *candidate) int { return first(a.rule.login, b.rule.login) }},
	{"names HEAD and not GET", func(a, b *candidate) int { return first(a.headAlone, b.headAlone) }},
	{"has a lower priority number", func(a, b *candidate) int { return cmp.Compare(a.rule.priority, b.rule.priority) }},
}

// compareSpecific is the first of the comparisons that sees a difference. Equal candidates stay in file order.
func compareSpecific(a, b *candidate) int {
	for _, c := range comparisons {
		if n := c.of(a, b); n != 0 {
			return n
		}
	}
	return 0
}

func comparePatterns(a, b *pattern) int {
	if a == nil || b == nil {
		return 0
	}
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.literals, a.literals))
}

// kinds returns how many of users, tenants, cidrs, entries and methods the candidate names.
func (c *candidate) kinds() (named int) {
	for _, d := range []dimension{dimUser, dimTenant, dimNetwork, dimEntry, dimMethod} {
		if len(c.asks[d]) > 0 {
			named++
		}
	}
	return named
}

// first orders those that have something before those that have not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
