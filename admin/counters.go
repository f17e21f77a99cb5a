package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/limit"
)

// HolderRequest names counters: by who is counted, or by their keys.
type HolderRequest struct {
	Whom
	Endpoint string `json:"endpoint,omitempty"`                       // a path, for rules that count by it
	Tier     string `json:"tier,omitempty" in:"1..1024" like:"^[^/]"` // a tier, for rules that count by it
	// keys of counters, as explain and usage show them, in place of all others
	Keys []string `json:"keys,omitempty" in:"1..1000"`
}

// usageRequest asks what is left.
type usageRequest struct {
	Domain string `query:"domain"`                            // may be left out where the rules have one domain
	User   string `query:"user" in:"1..1024" like:"^[^/]"`    // a user: what begins with / looks like a path
	Tenant string `query:"tenant" in:"1..1024" like:"^[^/]"`  // a tenant: what begins with / looks like a path
	APIKey string `query:"api_key" in:"1..1024" like:"^[^/]"` // the id of an API key
	// an address or a network, such as 192.0.2.7 or 192.0.2.0/24
	IP       Network `query:"ip"`
	Endpoint string  `query:"endpoint"`                       // a path, for rules that count by it
	Tier     string  `query:"tier" in:"1..1024" like:"^[^/]"` // a tier, for rules that count by it
	Key      string  `query:"key"`                            // the key of a counter, in place of all others
}

// UsageView is what is left to an identity.
type UsageView struct {
	Identity HolderRequest `json:"identity"`
	Profile  *ProfileView  `json:"profile"`
	Counters []CounterView `json:"counters"`
	Unlisted []Unlisted    `json:"unlisted"`
	Unknown  string        `json:"unknown,omitempty"` // what the store did not answer, and what is shown instead
}

// Unlisted is a rule that counts by the holder and by something that is not given.
type Unlisted = descriptors.Unlisted

// CounterView is a counter.
type CounterView struct {
	Rule       string    `json:"rule"`         // the rule
	Name       string    `json:"name"`         // what headers call it
	Who        []Owner   `json:"who"`          // whom it counts
	Own        bool      `json:"own"`          // it is a limit of its own of whom it counts
	At         string    `json:"at,omitempty"` // where it is written
	Scope      string    `json:"scope"`        // what it counts by
	Key        string    `json:"key"`          // the key of the counter
	Limit      LimitView `json:"limit"`
	Left       int64     `json:"left"`                        // what is left
	State      string    `json:"state" one:"full fills ends"` // full, or what reset_after is the time of
	ResetAfter float64   `json:"reset_after"`                 // seconds until it is full, or its window ends
	CoolDown   float64   `json:"cool_down,omitempty"`         // seconds that a penalty still lasts
	Unknown    string    `json:"unknown,omitempty"`           // why the store did not answer
	Share      bool      `json:"share,omitempty"`             // left is what this sidecar's own share holds
	Idle       string    `json:"idle,omitempty"`              // why no request of the identity spends from it
}

// Owner is one of whom or what a counter counts, such as a user or an endpoint.
type Owner struct {
	Kind string `json:"kind"` // what the rule counts by, or a descriptor key
	Name string `json:"name"` // a hash where the key holds no more
}

// owners are whom the counter of a key counts.
func owners(e *descriptors.Effect, key string) []Owner {
	all := []Owner{}
	for _, one := range e.Whose(key) {
		all = append(all, Owner{one.Key, one.Value})
	}
	return all
}

// stateOf is full where nothing is spent, else what comes next: the tokens come back, or the window ends.
func stateOf(l *limit.Limit, left int64) string {
	switch {
	case left >= l.Capacity():
		return "full"
	case l.Algorithm.EndsAtOnce():
		return "ends"
	}
	return "fills"
}

// usage serves GET /v1/usage.
func (a *API) usage(ctx context.Context, in *usageRequest) (*UsageView, error) {
	h := HolderRequest{
		Whom:     Whom{Domain: in.Domain, User: in.User, Tenant: in.Tenant, APIKey: in.APIKey, IP: in.IP},
		Endpoint: in.Endpoint, Tier: in.Tier,
	}
	if in.Key != "" {
		h.Keys = []string{in.Key}
	}
	counters, unlisted, err := a.counters(ctx, &h)
	if err != nil {
		return nil, err
	}
	view := &UsageView{Identity: h, Counters: a.look(ctx, counters, true), Unlisted: unlisted}
	if id, named, err := a.identity(&h.Whom); err == nil && named {
		profile, err := a.Profiles.Get(ctx, id)
		if err != nil {
			profile = a.Profiles.Known(id)
			view.Unknown = fmt.Sprintf("what is kept now and what other sidecars spend; here is what this one knew "+
				"last, and what its own share has left: %v", err)
		}
		view.Profile = viewOf(profile)
	}
	return view, nil
}

// counters finds the counters that a request names.
func (a *API) counters(ctx context.Context, h *HolderRequest) ([]descriptors.Counter, []descriptors.Unlisted, error) {
	if len(h.Keys) > 0 {
		counters, err := a.byKeys(h)
		return counters, nil, err
	}
	d, err := a.domain(h.Domain)
	if err != nil {
		return nil, nil, err
	}
	h.Domain = d.Name
	who, err := whoOf(h)
	if err != nil {
		return nil, nil, err
	}
	of := descriptors.Holder{Tenant: h.Tenant, User: h.User, IP: string(h.IP), Endpoint: h.Endpoint, APIKey: h.APIKey,
		Tier: h.Tier}
	counters, unlisted := d.Counters(of, a.Engine.Known(ctx, d.Name, &who))
	return counters, unlisted, nil
}

// whoOf is who is named.
func whoOf(h *HolderRequest) (descriptors.Who, error) {
	who := descriptors.Who{Tenant: h.Tenant, User: h.User, APIKey: h.APIKey}
	if h.IP != "" {
		network, known := descriptors.ParseAddress(string(h.IP))
		if !known {
			return who, httpapi.Cannot("ip %q must be an address or a network, such as 192.0.2.7 or 192.0.2.0/24", h.IP)
		}
		who.Address = network
	}
	return who, nil
}

// byKeys finds the counters of keys.
func (a *API) byKeys(h *HolderRequest) ([]descriptors.Counter, error) {
	if h.Whom != (Whom{Domain: h.Domain}) || h.Endpoint+h.Tier != "" {
		return nil, httpapi.Cannot("keys name counters by themselves: leave out whom, endpoint and tier")
	}
	set := a.Engine.Rules()
	if set == nil {
		return nil, httpapi.NewProblem(http.StatusServiceUnavailable, "there are no rules yet")
	}
	var all []descriptors.Counter
	for _, key := range h.Keys {
		domain, c, found := set.CounterOf(key)
		if !found || h.Domain != "" && domain != h.Domain {
			return nil, httpapi.NewProblem(http.StatusNotFound,
				"no limit of the rules has a counter with the key %q: explain and usage by identity show keys", key)
		}
		all = append(all, c)
	}
	return all, nil
}

// look asks the store what is left on the counters, or was a moment ago where that will do.
func (a *API) look(ctx context.Context, counters []descriptors.Counter, mayLag bool) []CounterView {
	var views []CounterView
	var asked []limit.Charge
	for i := range counters {
		asked = append(asked, counters[i].Charge)
	}
	decisions := a.Engine.Usage(ctx, asked, mayLag)
	for i := range counters {
		e, d := counters[i].Effect, &decisions[i]
		view := CounterView{
			Rule: e.Rule, Name: e.Title(), Who: owners(e, asked[i].Key), Own: e.Account != "",
			At: live.Place(e.At()), Scope: e.Scope, Key: asked[i].Key, Limit: limitView(&asked[i].Limit, e), Left: d.Remaining,
			State: stateOf(&asked[i].Limit, d.Remaining), ResetAfter: seconds(d.ResetAfter), Unknown: d.Reason,
			Idle: counters[i].Idle,
		}
		if d.Reason != "" {
			a.lookHere(ctx, &counters[i], &view)
		}
		if d.Penalized {
			view.CoolDown = seconds(d.RetryAfter)
		}
		views = append(views, view)
	}
	return views
}

// lookHere fills in what this sidecar counts of a limit by itself, while the store does not answer.
func (a *API) lookHere(ctx context.Context, c *descriptors.Counter, view *CounterView) {
	own, counts := a.Engine.OwnShare(ctx, c)
	if counts {
		view.Share, view.Left, view.ResetAfter = true, own.Remaining, seconds(own.ResetAfter)
	}
}

// ResetRequest asks for full counters, or for the end of penalties.
type ResetRequest struct {
	HolderRequest
	DryRun bool `json:"dry_run,omitempty"` // changes nothing, and answers with what would change
}

// CountersChange is what a change of counters did, or would do.
type CountersChange struct {
	Identity HolderRequest `json:"identity"`
	DryRun   bool          `json:"dry_run"` // nothing was changed
	Before   []CounterView `json:"before"`
	After    []CounterView `json:"after"`
	Unlisted []Unlisted    `json:"unlisted"`
}

// reset serves POST /v1/reset.
func (a *API) reset(ctx context.Context, in *httpapi.Sent[ResetRequest]) (*CountersChange, error) {
	return a.restore(ctx, "reset", &in.Body, func(counter *descriptors.Counter) string { return counter.Charge.Key })
}

// pardon serves POST /v1/pardon.
func (a *API) pardon(ctx context.Context, in *httpapi.Sent[ResetRequest]) (*CountersChange, error) {
	return a.restore(ctx, "pardon", &in.Body,
		func(counter *descriptors.Counter) string { return counter.Charge.PenaltyKey })
}

// restore removes a key of each counter, and lets all sidecars forget what they know of the counters.
func (a *API) restore(
	ctx context.Context, action string, ask *ResetRequest, keyOf func(*descriptors.Counter) string,
) (*CountersChange, error) {
	if ask.User+ask.Tenant+string(ask.IP)+ask.APIKey+ask.Endpoint == "" && len(ask.Keys) == 0 {
		return nil, httpapi.Cannot("name whom, by user, tenant, api_key, ip or endpoint, or name keys")
	}
	counters, unlisted, err := a.counters(ctx, &ask.HolderRequest)
	if err == nil {
		err = a.reachable(ctx)
	}
	if err != nil {
		return nil, err
	}
	counters = slices.DeleteFunc(counters, func(one descriptors.Counter) bool { return keyOf(&one) == "" })
	answer := &CountersChange{Identity: ask.HolderRequest, DryRun: ask.DryRun, Before: a.look(ctx, counters, false),
		Unlisted: unlisted}
	answer.After = answer.Before
	if ask.DryRun || len(counters) == 0 {
		return answer, nil
	}
	err = a.remove(ctx, counters, keyOf)
	if err != nil {
		return nil, a.failed(ctx, action, ask.HolderRequest, err)
	}
	answer.After = a.look(ctx, counters, false)
	a.logChange(ctx, action, ask.HolderRequest, answer.Before, answer.After)
	return answer, nil
}

// remove removes the keys in the store, here, and from what other sidecars know.
func (a *API) remove(ctx context.Context, counters []descriptors.Counter,
	keyOf func(*descriptors.Counter) string) error {
	var gone, touched []string
	for i := range counters {
		gone = append(gone, keyOf(&counters[i]))
		touched = append(touched, counters[i].Charge.Key, keyOf(&counters[i]))
	}
	slices.Sort(gone)
	gone = slices.Compact(gone)
	err := a.Engine.Reset(ctx, gone)
	if err != nil {
		return err
	}
	slices.Sort(touched)
	return a.Forget(ctx, slices.Compact(touched), gone)
}
