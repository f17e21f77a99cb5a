package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/extauthz"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/rules"
)

// api makes what the debug port serves under /v1.
func (s *Sidecar) api() (http.Handler, error) {
	rls := s.serving.rls
	a := &admin.API{
		Engine: s.counts.engine, Profiles: s.counts.profiles, Log: s.reports.loadLog, Forget: s.forgetCounters,
		InUse: s.rulesNow, Config: s.config, Counted: s.counted,
		Top: s.reports.top, TopOfAll: s.topOfAll, Sidecars: s.sidecarsNow, Away: s.away, Events: &s.reports.feed,
		Decision: s.decision,
		Stopping: s.serving.stopping,
		Doors: admin.Doors{RLS: rls.ParseJSON, HTTP: s.parseHTTP,
			Answer: func(req *descriptors.Request, v *engine.Verdict) (one, other json.RawMessage, err error) {
				one, err = rls.RenderJSON(req, v)
				if err == nil {
					other, err = s.serving.authz.RenderJSON(req, v)
				}
				return one, other, err
			}},
	}
	a.EventsRole = admin.Roles.Parse(s.cfg.Admin.Events) // off: no role may
	err := s.access(&a.Access)
	if err != nil {
		return nil, err
	}
	return a.Operations().Handler(), nil
}

// parseHTTP reads a request as ext_authz would.
func (s *Sidecar) parseHTTP(r *admin.HTTPRequest) *descriptors.Request {
	h := &extauthz.HTTP{Domain: r.Domain, Method: r.Method, Path: r.Path, Host: r.Host, Peer: string(r.Peer),
		Principal: r.Principal}
	for name, value := range r.Headers {
		h.Headers = append(h.Headers, identity.Header{Name: name, Value: value})
	}
	for key, value := range r.Context {
		h.Extensions = append(h.Extensions, descriptors.Entry{Key: key, Value: value})
	}
	req := s.serving.authz.Parse(h)
	if r.Client != nil && req.Evidence != nil {
		req.Evidence.Verified = s.named(req.Domain, r.Client)
	}
	return req
}

// named is a client that is known by names. What is not given is that of the API key.
func (s *Sidecar) named(domain string, of *admin.NamedClient) *identity.Client {
	c := &identity.Client{User: of.User, Tenant: of.Tenant, Tier: of.Tier, Key: of.APIKey, By: identity.JWT,
		Authenticated: true}
	if of.APIKey == "" {
		return c
	}
	c.By = identity.APIKey
	set := s.counts.engine.Rules()
	if set == nil || set.Domain(domain) == nil || set.Domain(domain).Identity == nil {
		return c
	}
	known, _ := set.Domain(domain).Identity.KeyClient(of.APIKey)
	c.User, c.Tenant = cmp.Or(c.User, known.User, of.APIKey), cmp.Or(c.Tenant, known.Tenant)
	c.Tier = cmp.Or(c.Tier, known.Tier)
	return c
}

// rulesNow is which rules are in use.
func (s *Sidecar) rulesNow() admin.InUse {
	now := admin.InUse{XDS: s.xdsView()}
	if in := s.updates.inUse.Load(); in != nil {
		now.Hash, now.Loaded, now.Published = in.hash, in.at, in.published
	}
	return now
}

// config is the settings, without secrets.
func (s *Sidecar) config() admin.ConfigView {
	view := admin.ConfigView{Version: s.cfg.Version, Settings: []admin.SettingView{},
		Warnings: append([]string{}, s.cfg.Warnings...)}
	at := s.Addresses()
	view.Listens = admin.ListensView{GRPC: at.GRPC, HTTP: at.HTTP, Debug: at.Debug, Socket: at.UDS}
	for _, shown := range s.cfg.Shown() {
		view.Settings = append(view.Settings, admin.SettingView(shown))
	}
	return view
}

// access reads who may use the API.
func (s *Sidecar) access(a *httpapi.Access) error {
	c := &s.cfg.Admin
	a.Certified, a.Operators = c.ClientCA != "", c.OperatorNames()
	a.Local = admin.Roles.Parse(c.Local) // the settings were checked
	if c.Tokens == "" {
		return nil
	}
	file, err := admin.TokenFile.Open(c.Tokens, func(err error) {
		if err != nil {
			s.reports.log.Error("tokens cannot be read; those before stay", "error", err)
		}
	})
	if err != nil {
		return err
	}
	a.Tokens = file.Current
	return nil
}

// away is why no server of Redis answers, or nothing.
func (s *Sidecar) away(ctx context.Context) string {
	if s.counts.redis == nil {
		return ""
	}
	return s.counts.redis.Away(ctx)
}

// hostName is what this machine is called.
func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// card is what this sidecar shows about itself to the others.
func (s *Sidecar) card(degraded []string) admin.SidecarView {
	c := admin.SidecarView{Host: s.name(), Version: s.cfg.Version, Domains: append([]string{}, s.domains()...),
		Started: s.started, Degraded: degraded}
	if in := s.updates.inUse.Load(); in != nil {
		c.Rules, c.Loaded, c.Trials = in.hash, in.at, s.trialsOf(in.published)
		for i := range c.Trials {
			c.Trials[i].Requests -= in.before[i].Requests
			c.Trials[i].Refused -= in.before[i].Refused
		}
	}
	if view := s.xdsView(); view != nil {
		c.XDS = &admin.XDSState{Connected: view.Connected, Version: view.Version}
	}
	return c
}

// rulesInUse is which rules are in use, and since when.
type rulesInUse struct {
	hash      string
	at        time.Time
	published []rules.Merged
	before    []admin.TrialView // of the canaries, when the rules came into use
	set       *descriptors.Set
}
