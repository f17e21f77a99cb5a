package admin

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/rules"
)

// InUse is which rules are in use.
type InUse struct {
	Hash      string         // of the files, and of what the management server sent
	Loaded    time.Time      // when they came into use
	Published []rules.Merged // documents of the control plane that are part of them
	XDS       *XDSView       // nil: without a management server
}

// XDSView is the management server that rules come from.
type XDSView struct {
	Server    string    `json:"server"`
	Connected bool      `json:"connected"`         // a stream is open
	Since     time.Time `json:"since,omitzero"`    // since when that is so
	Error     string    `json:"error,omitempty"`   // why the stream is not open
	Version   string    `json:"version"`           // the last accepted version, as the server calls it
	Accepted  time.Time `json:"accepted,omitzero"` // when it was accepted
	Resources int       `json:"resources"`         // the resources in it
	Refused   string    `json:"refused,omitempty"` // why the newest response was refused
	Refusals  int64     `json:"refusals"`          // refusals (NACK) since the start
	// files whose domain is not used, because the server has one of that name
	Hides []string `json:"hides"`
}

// XDSState is the management server in short.
type XDSState struct {
	Connected bool   `json:"connected"` // a stream is open
	Version   string `json:"version"`   // the last accepted version, as the server calls it
}

// RulesView is the rules in use.
type RulesView struct {
	Hash    string       `json:"hash"`            // the hash of the rule files, and of what the management server sent
	Loaded  time.Time    `json:"loaded,omitzero"` // when they came into use
	Domains []DomainView `json:"domains"`
	XDS     *XDSView     `json:"xds,omitempty"` // none: rules come from files alone

	Published []PublishedView `json:"published"` // documents of the control plane that are laid over the rule files
}

// PublishedView is one document of the control plane, and what it does to the rule files.
type PublishedView struct {
	Domain      string   `json:"domain"`
	Version     int64    `json:"version"`     // version of the domain's rule set
	Publication int64    `json:"publication"` // grows with each publication, also of an old version
	Hash        string   `json:"hash"`        // SHA-256 of the document's text
	Files       bool     `json:"files"`       // rule files have the domain too
	Replaced    []string `json:"replaced"`    // rules of the files that the document has too: its own take their place
}

// DomainView is the rules of one domain.
type DomainView struct {
	Name string `json:"name"`
	// the file that it is written in; xds: and the name of the resource where it comes from a management server
	Source string     `json:"source"`
	Limits []RuleView `json:"limits"`
}

// RuleView is one limit, block or allow of the rules.
type RuleView struct {
	Rule    string     `json:"rule"` // the rule; in a descriptor tree the name of the limit, else the path of the node
	Name    string     `json:"name,omitempty"`
	At      string     `json:"at,omitempty"` // where it is written: file:line
	Scope   string     `json:"scope,omitempty"`
	Match   string     `json:"match,omitempty"` // what it matches; none: all that its scope is about
	Action  string     `json:"action" one:"reject throttle log_only block allow"`
	Tree    bool       `json:"tree"`                             // it is in a descriptor tree
	Account string     `json:"account,omitempty"`                // whose own limit it is
	Mode    string     `json:"mode" one:"enforced shadow quota"` // enforced, shadow or quota
	Limit   *LimitView `json:"limit,omitempty"`                  // none for a block or an allow
	Paid    bool       `json:"post_paid"`                        // it is charged after the response
	Reason  string     `json:"reason,omitempty"`
	Until   time.Time  `json:"until,omitzero"`
	Failure string     `json:"on_failure" one:"local open closed"`
}

// rulesRequest asks for the rules in use.
type rulesRequest struct {
	Domain string `query:"domain"` // one domain alone
}

var modes = [...]string{limit.Enforced: "enforced", limit.Shadow: "shadow", limit.Quota: "quota"}

// rules serves GET /v1/rules.
func (a *API) rules(_ context.Context, asked *rulesRequest) (*RulesView, error) {
	in := a.InUse()
	view := &RulesView{Hash: in.Hash, Loaded: in.Loaded, XDS: in.XDS,
		Published: publishedViews(in.Published, asked.Domain)}
	set := a.Engine.Rules()
	if set == nil {
		return view, nil
	}
	names := set.Domains()
	if asked.Domain != "" {
		d, err := a.domain(asked.Domain)
		if err != nil {
			return nil, err
		}
		names = []string{d.Name}
	}
	at := map[string]int{}
	for i, name := range names {
		at[name] = i
		view.Domains = append(view.Domains, DomainView{Name: name, Source: set.Domain(name).Source()})
	}
	for domain, effect := range set.Effects() {
		if i, wanted := at[domain]; wanted {
			view.Domains[i].Limits = append(view.Domains[i].Limits, ruleView(effect))
		}
	}
	return view, nil
}

// publishedViews are the documents of a domain, or of all where the name is empty.
func publishedViews(all []rules.Merged, domain string) []PublishedView {
	var views []PublishedView
	for _, p := range all {
		d := &p.Document
		if domain == "" || d.Domain == domain {
			views = append(views, PublishedView{d.Domain, d.Version, d.Publication, d.Hash, p.Files, p.Replaced})
		}
	}
	return views
}

func ruleView(e *descriptors.Effect) RuleView {
	view := RuleView{
		Rule: e.Rule, Name: e.Name, At: live.Place(e.At()), Scope: e.Scope, Match: e.Match(),
		Action: e.Action.String(), Tree: e.Tree, Account: e.Account, Paid: e.PostPaid(),
		Mode: modes[e.Mode], Reason: e.Reason, Until: e.Until, Failure: e.OnFailure.String(),
	}
	if e.Action == descriptors.Block || e.Action == descriptors.Allow {
		return view
	}
	l := LimitView{Name: e.Limit.Name, Unlimited: true}
	if e.Limit.Algorithm != 0 {
		l = limitView(&e.Limit, e)
	}
	view.Limit = &l
	return view
}

// SettingView is one variable of the environment.
type SettingView struct {
	Name  string `json:"name"`  // the variable
	Value string `json:"value"` // its value; secrets are hidden
}

// ConfigView is the settings of the sidecar.
type ConfigView struct {
	Version  string        `json:"version"`
	Settings []SettingView `json:"settings"`
	Warnings []string      `json:"warnings"` // variables that are set without an effect
	Listens  ListensView   `json:"listens"`  // where it listens
}

// ListensView is where a sidecar listens: addresses with their ports.
type ListensView struct {
	GRPC   string `json:"grpc"`             // for the rate limit service and ext_authz
	HTTP   string `json:"http"`             // for /json and the probes
	Debug  string `json:"debug"`            // for this API and the page
	Socket string `json:"socket,omitempty"` // of gRPC, by its path
}

// config serves GET /v1/config.
func (a *API) config(context.Context, *httpapi.None) (*ConfigView, error) {
	view := a.Config()
	return &view, nil
}
