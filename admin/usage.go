package admin

import (
	"context"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// HolderRequest names counters: by who is counted, or by their keys.
type HolderRequest struct {
	Whom
	Endpoint string   `json:"endpoint,omitempty"` // for rules that count by it too
	Tier     string   `json:"tier,omitempty"`     // likewise
	Keys     []string `json:"keys,omitempty"`     // in place of all others but domain
}

// maxKeys is how many keys one request names at most.
const maxKeys = 1000

// UsageView is what is left to an identity.
type UsageView struct {
	Identity HolderRequest  `json:"identity"`
	Record   *RecordView    `json:"record"`
	Counters []CounterView  `json:"counters"`
	Unlisted []UnlistedView `json:"unlisted"`
}

// CounterView is one counter.
type CounterView struct {
	Rule       string    `json:"rule"`
	At         string    `json:"at,omitempty"`
	Scope      string    `json:"scope"`
	Key        string    `json:"key"`
	Limit      LimitView `json:"limit"`
	Left       int64     `json:"left"`
	ResetAfter float64   `json:"reset_after"`         // in seconds
	CoolDown   float64   `json:"cool_down,omitempty"` // rest of a penalty, in seconds
	Unknown    string    `json:"unknown,omitempty"`   // why the store could not tell
}

// UnlistedView is a rule whose counters cannot be told from what was given.
type UnlistedView struct {
	Rule  string   `json:"rule"`
	Scope string   `json:"scope"`
	Lacks []string `json:"lacks"`
}

// usage serves GET /v1/usage.
func (a *API) usage(c *call) (any, *Problem) {
	asked, wrong := c.query("domain", "user", "tenant", "api_key", "ip", "endpoint", "tier", "key")
	if wrong != nil {
		return nil, wrong
	}
	h := HolderRequest{
		Whom:     Whom{Domain: asked["domain"], User: asked["user"], Tenant: asked["tenant"], APIKey: asked["api_key"], IP: asked["ip"]},
		Endpoint: asked["endpoint"], Tier: asked["tier"],
	}
	if key, given := asked["key"]; given {
		h.Keys = []string{key}
	}
	counters, unlisted, wrong := a.counters(c.ctx, &h)
	if wrong != nil {
		return nil, wrong
	}
	view := UsageView{Identity: h, Counters: a.look(c.ctx, counters), Unlisted: []UnlistedView{}}
	for _, u := range unlisted {
		view.Unlisted = append(view.Unlisted, UnlistedView(u))
	}
	if id, none := a.identity(&h.Whom); none == nil {
		record, err := a.Records.Get(c.ctx, id)
		if err != nil {
			return nil, problem(http.StatusServiceUnavailable, "%v", err)
		}
		view.Record = viewOf(record)
	}
	return view, nil
}

// counters finds the counters that a request names.
func (a *API) counters(ctx context.Context, h *HolderRequest) ([]descriptors.Counter, []descriptors.Unlisted, *Problem) {
	if len(h.Keys) > 0 {
		counters, wrong := a.byKeys(h)
		return counters, nil, wrong
	}
	d, wrong := a.domain(h.Domain)
	if wrong != nil {
		return nil, nil, wrong
	}
	h.Domain = d.Name
	who, wrong := whoOf(h)
	if wrong != nil {
		return nil, nil, wrong
	}
	of := descriptors.Holder{Tenant: h.Tenant, User: h.User, IP: h.IP, Endpoint: h.Endpoint, APIKey: h.APIKey, Tier: h.Tier}
	counters, unlisted := d.Counters(of, a.Engine.Known(ctx, d.Name, &who))
	return counters, unlisted, nil
}

// whoOf checks who is named.
func whoOf(h *HolderRequest) (descriptors.Who, *Problem) {
	who := descriptors.Who{Tenant: h.Tenant, User: h.User, APIKey: h.APIKey}
	for _, one := range []struct{ kind, name string }{{"user", h.User}, {"tenant", h.Tenant}, {"api_key", h.APIKey}, {"tier", h.Tier}} {
		if utf8.RuneCountInString(one.name) > maxName {
			return who, bad("the %s has more than %d characters", one.kind, maxName)
		}
		if one.name != "" && one.name[0] == '/' {
			return who, bad("%s %q looks like a path: name a %s, and give the path as endpoint", one.kind, one.name, one.kind)
		}
	}
	if h.IP != "" {
		network, known := descriptors.ParseAddress(h.IP)
		if !known {
			return who, bad("ip %q must be an address or a network, such as 192.0.2.7 or 192.0.2.0/24", h.IP)
		}
		who.Address = network
	}
	return who, nil
}

// byKeys finds the counters of keys.
func (a *API) byKeys(h *HolderRequest) ([]descriptors.Counter, *Problem) {
	if h.Whom != (Whom{Domain: h.Domain}) || h.Endpoint+h.Tier != "" {
		return nil, cannot("keys name counters by themselves: leave out user, tenant, api_key, ip, endpoint and tier")
	}
	if len(h.Keys) > maxKeys {
		return nil, bad("%d keys are more than %d", len(h.Keys), maxKeys)
	}
	set := a.Engine.Rules()
	if set == nil {
		return nil, problem(http.StatusServiceUnavailable, "there are no rules yet")
	}
	var all []descriptors.Counter
	for _, key := range h.Keys {
		domain, c, found := set.CounterOf(key)
		if !found || h.Domain != "" && domain != h.Domain {
			return nil, problem(http.StatusNotFound, "no limit of the rules has a counter with the key %q: explain and usage by identity show keys", key)
		}
		all = append(all, c)
	}
	return all, nil
}

// look asks the store what is left on the counters.
func (a *API) look(ctx context.Context, counters []descriptors.Counter) []CounterView {
	views := []CounterView{}
	var asked []limit.Charge
	for i := range counters {
		asked = append(asked, counters[i].Charge)
	}
	decisions := a.Engine.Usage(ctx, asked)
	for i := range counters {
		e, d := counters[i].Effect, &decisions[i]
		view := CounterView{
			Rule: e.Rule, At: place(e.At()), Scope: e.Scope, Key: asked[i].Key, Limit: limitView(&asked[i].Limit, e), Left: d.Remaining,
			ResetAfter: seconds(d.ResetAfter), Unknown: d.Reason,
		}
		if d.Penalized {
			view.CoolDown = seconds(d.RetryAfter)
		}
		views = append(views, view)
	}
	return views
}

// ResetRequest asks for full counters, or for the end of penalties.
type ResetRequest struct {
	HolderRequest
	DryRun bool `json:"dry_run,omitempty"`
}

// CountersChange is what a change of counters did, or would do.
type CountersChange struct {
	Identity HolderRequest  `json:"identity"`
	DryRun   bool           `json:"dry_run"`
	Before   []CounterView  `json:"before"`
	After    []CounterView  `json:"after"`
	Unlisted []UnlistedView `json:"unlisted"`
}

// reset serves POST /v1/reset.
func (a *API) reset(c *call) (any, *Problem) {
	return a.restore(c, "reset", func(counter *descriptors.Counter) string { return counter.Charge.Key })
}

// pardon serves POST /v1/pardon.
func (a *API) pardon(c *call) (any, *Problem) {
	return a.restore(c, "pardon", func(counter *descriptors.Counter) string { return counter.Charge.PenaltyKey })
}

// restore removes a key of each counter, and lets all sidecars forget what they know of the counters.
func (a *API) restore(c *call, what string, keyOf func(*descriptors.Counter) string) (any, *Problem) {
	var ask ResetRequest
	wrong := c.read(&ask)
	if wrong != nil {
		return nil, wrong
	}
	if ask.User+ask.Tenant+ask.IP+ask.APIKey+ask.Endpoint == "" && len(ask.Keys) == 0 {
		return nil, cannot("name whom, by user, tenant, api_key, ip or endpoint, or name keys")
	}
	counters, unlisted, wrong := a.counters(c.ctx, &ask.HolderRequest)
	if wrong != nil {
		return nil, wrong
	}
	counters = slices.DeleteFunc(counters, func(one descriptors.Counter) bool { return keyOf(&one) == "" })
	answer := CountersChange{Identity: ask.HolderRequest, DryRun: ask.DryRun, Before: a.look(c.ctx, counters), Unlisted: []UnlistedView{}}
	for _, u := range unlisted {
		answer.Unlisted = append(answer.Unlisted, UnlistedView(u))
	}
	answer.After = answer.Before
	if ask.DryRun || len(counters) == 0 {
		return answer, nil
	}
	err := a.remove(c.ctx, counters, keyOf)
	if err != nil {
		a.Log.Warn("admin: "+what+" failed", "who", c.caller.Name, "whom", jsonText(ask.HolderRequest), "error", err)
		return nil, problem(http.StatusServiceUnavailable, "%v", err)
	}
	answer.After = a.look(c.ctx, counters)
	a.logChange(c, what, "whom", jsonText(ask.HolderRequest), "before", jsonText(answer.Before), "after", jsonText(answer.After))
	return answer, nil
}

// remove removes the keys in the store, here, and from what other sidecars know.
func (a *API) remove(ctx context.Context, counters []descriptors.Counter, keyOf func(*descriptors.Counter) string) error {
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
