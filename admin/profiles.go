package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/profiles"
)

// Whom is the part of a request that names an identity: a domain, and one of the others.
type Whom struct {
	// may be left out where the rules have one domain
	Domain string `json:"domain,omitempty"`
	User   string `json:"user,omitempty" in:"1..1024" like:"^[^/]"` // a user: what begins with / looks like a path
	// a tenant: what begins with / looks like a path
	Tenant string `json:"tenant,omitempty" in:"1..1024" like:"^[^/]"`
	APIKey string `json:"api_key,omitempty" in:"1..1024" like:"^[^/]"` // the id of an API key
	// an address or a network, such as 192.0.2.7 or 192.0.2.0/24
	IP Network `json:"ip,omitempty"`
}

// Network is the text of an address or a network.
type Network string

// Schema describes it.
func (*Network) Schema() *httpapi.Schema {
	const part = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	return &httpapi.Schema{
		Description: "An address or a network, such as 192.0.2.7 or 192.0.2.0/24.",
		AnyOf: []*httpapi.Schema{
			{Type: "string", Format: "ipv4"}, {Type: "string", Format: "ipv6"},
			{Type: "string", Pattern: `^` + part + `(\.` + part + `){3}/(3[0-2]|[12]?[0-9])$`},
			{Type: "string", Pattern: `^[0-9a-fA-F:.]+/(12[0-8]|1[01][0-9]|[1-9]?[0-9])$`},
		},
	}
}

// Span is the text of a duration.
type Span string

// Schema describes it.
func (*Span) Schema() *httpapi.Schema {
	return &httpapi.Schema{Type: "string", Pattern: profiles.SpanPattern,
		Description: "A whole number and one unit, such as 10m, 1h or 7d."}
}

// BlockRequest asks to refuse all requests of an identity.
type BlockRequest struct {
	_ struct{} `oneof:"user tenant api_key ip"`
	Whom
	Reason string    `json:"reason,omitempty" in:"1..1024"` // what the client reads
	Until  time.Time `json:"until,omitzero"`                // when the block ends; without it and without for: never
	// how long the block lasts, in place of until: a whole number and one unit, such as 10m or 7d
	For    Span    `json:"for,omitempty"`
	Note   *string `json:"note,omitempty" in:"0..1024"` // a note for operators
	DryRun bool    `json:"dry_run,omitempty"`           // changes nothing, and answers with what would change
}

// UnblockRequest asks to let an identity through again.
type UnblockRequest struct {
	_ struct{} `oneof:"user tenant api_key ip"`
	Whom
	// also lifts the blocks of the rule file that name the user, tenant or address
	Lift   bool    `json:"lift,omitempty"`
	Note   *string `json:"note,omitempty" in:"0..1024"` // a note for operators
	DryRun bool    `json:"dry_run,omitempty"`           // changes nothing, and answers with what would change
}

// TierRequest asks for a tier, or for limits of its own, of an identity. What is left out stays.
type TierRequest struct {
	_ struct{} `oneof:"user tenant api_key ip"`
	Whom
	// the tier; an empty one goes back to the rule file's
	Tier *string `json:"tier,omitempty" in:"0..256"`
	// limits of the identity's own; an empty list goes back to the rule file's
	Limits *[]profiles.LimitRequest `json:"limits,omitempty" in:"0..16"`
	Note   *string                  `json:"note,omitempty" in:"0..1024"` // a note for operators
	// changes nothing, and answers with what would change
	DryRun bool `json:"dry_run,omitempty"`
}

// ProfileChange is what a change of a profile did, or would do.
type ProfileChange struct {
	Identity Whom         `json:"identity"`
	DryRun   bool         `json:"dry_run"` // nothing was changed
	Before   *ProfileView `json:"before"`
	After    *ProfileView `json:"after"`
	Warnings []string     `json:"warnings"` // what may not be meant
}

// ProfileView is what is known about an identity beside the rule file.
type ProfileView struct {
	Block  *BlockView  `json:"block,omitempty"`
	Tier   string      `json:"tier,omitempty"`   // in place of the rule file's
	Limits []LimitView `json:"limits,omitempty"` // in place of the rule file's
	Note   string      `json:"note,omitempty"`   // for operators
	By     string      `json:"by,omitempty"`     // who changed it last
	At     time.Time   `json:"at,omitzero"`      // when
}

// BlockView is a block.
type BlockView struct {
	// it lifts blocks: those of the rule file that name the identity do not count
	Lifted bool      `json:"lifted,omitempty"`
	Reason string    `json:"reason,omitempty"` // what the client reads
	Until  time.Time `json:"until,omitzero"`   // when it ends; none: never
}

// LimitView is a limit.
type LimitView struct {
	// the name of the limit
	Name string `json:"name,omitempty"`
	// nothing is limited
	Unlimited bool `json:"unlimited,omitempty"`
	// tokens in the time of per
	Count int64 `json:"count"`
	// the window, such as 1h0m0s or calendar_day
	Per string `json:"per,omitempty"`
	// the most that can be left, of a token bucket
	Burst int64 `json:"burst,omitempty"`
	// how it counts
	Algorithm string `json:"algorithm,omitempty" one:"token_bucket sliding_window fixed_window sliding_log none"`
}

// viewOf is a profile as answers show it; nil for none.
func viewOf(r *profiles.Profile) *ProfileView {
	if r == nil {
		return nil
	}
	v := &ProfileView{Tier: r.Tier, Note: r.Note, By: r.By, At: r.At}
	if r.Block != nil {
		v.Block = &BlockView{r.Block.Lifted, r.Block.Reason, r.Block.Until}
	}
	for _, l := range r.Limits {
		one := LimitView{Name: l.Name, Unlimited: l.Unlimited, Count: l.Count, Burst: l.Burst, Algorithm: l.Algorithm}
		if l.Per > 0 {
			one.Per = l.Per.String()
		}
		v.Limits = append(v.Limits, one)
	}
	return v
}

// domain finds the rules of the domain that a request names.
func (a *API) domain(name string) (*descriptors.CompiledDomain, error) {
	set := a.Engine.Rules()
	if set == nil {
		return nil, httpapi.NewProblem(http.StatusServiceUnavailable, "there are no rules yet")
	}
	all := set.Domains()
	if name == "" && len(all) == 1 {
		name = all[0]
	}
	if name == "" {
		return nil, httpapi.Cannot("domain is missing: name one of %s", strings.Join(all, ", "))
	}
	d := set.Domain(name)
	if d == nil {
		return nil, httpapi.NewProblem(http.StatusNotFound,
			"there are no rules for the domain %q: there are some for %s",
			name, strings.Join(all, ", "))
	}
	return d, nil
}

// identity is the identity that a request names, if it names one alone.
func (a *API) identity(w *Whom) (id profiles.Identity, named bool, err error) {
	d, err := a.domain(w.Domain)
	if err != nil {
		return id, false, err
	}
	count := 0
	names := map[profiles.Kind]string{profiles.User: w.User, profiles.Tenant: w.Tenant, profiles.APIKey: w.APIKey}
	for kind, name := range names {
		if name != "" {
			id, count = profiles.Identity{Domain: d.Name, Kind: kind, Name: name}, count+1
		}
	}
	if w.IP != "" {
		network, known := descriptors.ParseAddress(string(w.IP))
		if !known {
			return id, false, httpapi.Cannot("ip %q must be an address or a network, such as 192.0.2.7 or 192.0.2.0/24",
				w.IP)
		}
		id = profiles.Identity{Domain: d.Name, Kind: profiles.Network,
			Network: netip.PrefixFrom(network.Addr(), network.Bits()).Masked()}
		count++
	}
	return id, count == 1, nil
}

// whom is an identity as answers show it.
func whom(id profiles.Identity) Whom {
	w := Whom{Domain: id.Domain}
	switch id.Kind {
	case profiles.User:
		w.User = id.Name
	case profiles.Tenant:
		w.Tenant = id.Name
	case profiles.APIKey:
		w.APIKey = id.Name
	default:
		w.IP = Network(id.Text())
	}
	return w
}

// block serves POST /v1/block.
func (a *API) block(ctx context.Context, in *httpapi.Sent[BlockRequest]) (*ProfileChange, error) {
	ask := &in.Body
	until, err := a.until(ask.Until, string(ask.For))
	if err == nil && !profiles.Printable(ask.Reason) {
		err = httpapi.Cannot("the reason must have no control characters")
	}
	if err != nil {
		return nil, err
	}
	return a.change(ctx, "block", &ask.Whom, ask.DryRun, ask.Note, nil, func(r *profiles.Profile) {
		r.Block = &profiles.Block{Reason: ask.Reason, Until: until}
	})
}

// unblock serves POST /v1/unblock.
func (a *API) unblock(ctx context.Context, in *httpapi.Sent[UnblockRequest]) (*ProfileChange, error) {
	ask := &in.Body
	if ask.Lift && ask.APIKey != "" {
		return nil, httpapi.Cannot("lift needs a user, a tenant or an ip: blocks of the rule file do not name API keys")
	}
	return a.change(ctx, "unblock", &ask.Whom, ask.DryRun, ask.Note, nil, func(r *profiles.Profile) {
		r.Block = nil
		if ask.Lift {
			r.Block = &profiles.Block{Lifted: true}
		}
	})
}

// tier serves POST /v1/tier.
func (a *API) tier(ctx context.Context, in *httpapi.Sent[TierRequest]) (*ProfileChange, error) {
	ask := &in.Body
	switch {
	case ask.IP != "":
		return nil, httpapi.Cannot("an address has neither tier nor limits: name a user, a tenant or an api_key")
	case ask.Tier == nil && ask.Limits == nil && ask.Note == nil:
		return nil, httpapi.Cannot("tier, limits and note are missing: give at least one of them")
	}
	var limits []profiles.Limit
	if ask.Limits != nil {
		var err error
		limits, err = profiles.ReadLimits(*ask.Limits)
		if err != nil {
			return nil, httpapi.Cannot("%v", err)
		}
	}
	return a.change(ctx, "tier", &ask.Whom, ask.DryRun, ask.Note, a.unknownTier(ask), func(r *profiles.Profile) {
		if ask.Tier != nil {
			r.Tier = *ask.Tier
		}
		if ask.Limits != nil {
			r.Limits = limits
		}
	})
}

// unknownTier warns of a tier that no rule names.
func (a *API) unknownTier(ask *TierRequest) []string {
	d, _ := a.domain(ask.Domain)
	if d == nil || ask.Tier == nil || *ask.Tier == "" || d.NamesTier(*ask.Tier) {
		return nil
	}
	return []string{fmt.Sprintf("no rule of the domain %q names the tier %q", d.Name, *ask.Tier)}
}
