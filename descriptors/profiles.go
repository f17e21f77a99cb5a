package descriptors

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/identity"
)

// RuleProfile is the rule of a block that a profile holds.
const RuleProfile = "~profile"

// Profile is what is known about one identity beside the rules: it wins over the rule file, field by field. Its
// exported fields are not changed once a request has met it. It is safe for concurrent use.
type Profile struct {
	identity.ID
	Tier    string  // empty: as the rule file has it
	Limits  []Limit // none: as the rule file has them
	Blocked bool
	Lifted  bool      // blocks of the rule file that name the identity do not count
	Reason  string    // of the block
	Until   time.Time // of the block, or of its lifting; zero: for ever

	made atomic.Pointer[madeProfile]
}

// madeProfile is a profile in the terms of one domain.
type madeProfile struct {
	domain uint64        // its serial: a pointer would keep a rule set that was replaced
	own    *compiledRule // nil: none
	block  *Effect
}

// Profiles are what is known about the identities of one request; nil where there is nothing.
type Profiles struct{ Tenant, User, APIKey, Address *Profile }

// Who is the identities of a request that there may be profiles about. An empty one is not known.
type Who struct {
	Tenant, User, APIKey string
	Address              netip.Prefix // the whole address, or a network where the mesh masks it
}

// Who fills in the identities of a request, from its attributes. It uses the memory of m, and leaves m to be filled by
// Match.
func (s *Set) Who(req *Request, m *Match, w *Who) {
	*w = Who{}
	m.Reset()
	d := s.domains[req.Domain]
	if d == nil {
		return
	}
	a := &m.scratch.attrs
	if req.Subject == nil {
		d.findLeaves(req, m)
		a.gather(req, d.attributes)
		a.network, _ = ParseAddress(a.text[attrIP])
	} else {
		a.setSubject(req.Subject)
	}
	w.Tenant, w.User, w.APIKey, w.Address = a.text[attrTenant], a.text[attrUser], a.text[attrAPIKey], a.network
}

// in is the profile in the terms of a domain. It is made once for each rule set.
func (r *Profile) in(d *CompiledDomain) *madeProfile {
	if made := r.made.Load(); made != nil && made.domain == d.serial {
		return made
	}
	made := &madeProfile{domain: d.serial}
	account := &Account{Name: r.Name, Tier: r.Tier, Limits: r.Limits}
	switch r.Kind {
	case identity.UserID:
		made.own = d.compileAccount(account, ScopeUser, accountUser)
	case identity.TenantID:
		made.own = d.compileAccount(account, ScopeTenant, accountTenant)
	case identity.APIKeyID:
		made.own = d.compileAccount(account, ScopeUser, accountKey)
	}
	if made.own != nil {
		for i := range made.own.limits {
			made.own.limits[i].effect.class = classOf(d.Name, made.own.limits[i].effect)
		}
	}
	made.block = &Effect{
		Name: "block", Rule: RuleProfile, Scope: r.Kind.String(), Action: Block,
		Measure: Measure{Reason: r.Reason, Until: r.Until},
		Account: r.Name,
		Metric:  []string{"rule", RuleProfile},
	}
	r.made.Store(made)
	return made
}

// holds reports whether the profile's part about blocks is still in force.
func (r *Profile) holds(now time.Time) bool { return r.Until.IsZero() || now.Before(r.Until) }

// profileBlock returns the block that a profile holds, or nil: of the address, the tenant, the user or the key, in this
// order.
func (d *CompiledDomain) profileBlock(req *Request) *Effect {
	if req.Profiles == nil {
		return nil
	}
	for _, r := range [...]*Profile{req.Profiles.Address, req.Profiles.Tenant, req.Profiles.User, req.Profiles.APIKey} {
		if r != nil && r.Blocked && r.holds(d.index.now()) {
			return r.in(d).block
		}
	}
	return nil
}

// profileTier returns the tier that a profile holds, or nothing.
func profileTier(r *Profile) string {
	if r == nil {
		return ""
	}
	return r.Tier
}

// profileOwn returns the limits that a profile holds, or nil.
func (d *CompiledDomain) profileOwn(r *Profile) *compiledRule {
	if r == nil {
		return nil
	}
	return r.in(d).own
}

// lifted returns which kinds of conditions do not make a block any more, because of a profile of the identity that they
// name.
func (d *CompiledDomain) lifted(req *Request) (kinds lifts) {
	if req.Profiles == nil {
		return 0
	}
	now := d.index.now()
	for _, one := range [...]struct {
		profile *Profile
		kind    lifts
	}{{req.Profiles.User, 1 << dimUser}, {req.Profiles.Tenant, 1 << dimTenant},
		{req.Profiles.Address, 1 << dimNetwork}} {
		if one.profile != nil && one.profile.Lifted && one.profile.holds(now) {
			kinds |= one.kind
		}
	}
	return kinds
}

// lifts is a set of dimensions.
type lifts uint16

// lifts reports whether a block names an identity that is freed of such blocks.
func (c *candidate) lifts(kinds lifts) bool {
	if kinds == 0 || c.written == nil || c.written.Action != Block {
		return false
	}
	for dim := range dimensions {
		if kinds&(1<<dim) != 0 && len(c.asks[dim]) > 0 {
			return true
		}
	}
	return false
}

// NamesTier reports whether a rule of the domain names a tier.
func (d *CompiledDomain) NamesTier(tier string) bool {
	_, known := d.index.names[dimTier][tier]
	return known
}
