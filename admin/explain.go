package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// Doors reads requests and writes answers as the doors do.
type Doors struct {
	RLS    func(body []byte) (*descriptors.Request, error) // a RateLimitRequest as JSON
	HTTP   func(request *HTTPRequest) *descriptors.Request // as ext_authz reads it
	Answer func(req *descriptors.Request, v *engine.Verdict) (rls, authz json.RawMessage, err error)
}

// ExplainRequest is a request to be explained, in one of two forms.
type ExplainRequest struct {
	RLS  json.RawMessage `json:"rls,omitempty"` // a RateLimitRequest
	HTTP *HTTPRequest    `json:"http,omitempty"`
}

// HTTPRequest is a request as ext_authz gets it.
type HTTPRequest struct {
	Domain    string            `json:"domain,omitempty"`
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	Host      string            `json:"host,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Peer      string            `json:"peer,omitempty"`
	Principal string            `json:"principal,omitempty"`
	Context   map[string]string `json:"context,omitempty"`
}

// Explained is what a request would get, and why.
type Explained struct {
	Domain     string           `json:"domain"`
	Known      bool             `json:"known"` // the domain has rules
	Client     *ClientView      `json:"client,omitempty"`
	Attributes []AttributeView  `json:"attributes"`
	Readings   []string         `json:"readings"`
	Factor     int64            `json:"factor"`
	Considered []ConsideredView `json:"considered"`
	Charges    []ChargeView     `json:"charges"`
	Verdict    VerdictView      `json:"verdict"`
	Answers    AnswersView      `json:"answers"`
}

// ClientView is who a request was taken for, and by which evidence.
type ClientView struct {
	User          string `json:"user,omitempty"`
	Tenant        string `json:"tenant,omitempty"`
	Tier          string `json:"tier,omitempty"`
	APIKey        string `json:"api_key,omitempty"`
	Address       string `json:"address,omitempty"`
	Evidence      string `json:"evidence"` // jwt, api_key, mtls or ip
	Authenticated bool   `json:"authenticated"`
}

// AttributeView is one attribute of the request.
type AttributeView struct {
	Name       string `json:"name"`
	Value      string `json:"value"`
	Descriptor *int   `json:"descriptor,omitempty"` // that supplied it, from 0
}

// ConsideredView is a rule, node, cost, own limit or record that the request meets.
type ConsideredView struct {
	What       string `json:"what"`
	Name       string `json:"name"`
	At         string `json:"at,omitempty"` // file:line
	Scope      string `json:"scope,omitempty"`
	Action     string `json:"action,omitempty"`
	Pattern    string `json:"pattern,omitempty"`
	Reading    string `json:"reading,omitempty"`
	Descriptor *int   `json:"descriptor,omitempty"`
	Won        bool   `json:"won"`
	BeatenBy   string `json:"beaten_by,omitempty"`
	BeatenAt   string `json:"beaten_at,omitempty"`
	Because    string `json:"because,omitempty"`
}

// ChargeView is one counter that the request would be charged on.
type ChargeView struct {
	Rule       string    `json:"rule"`
	Key        string    `json:"key"`
	Limit      LimitView `json:"limit"`
	Cost       int64     `json:"cost"`
	Operation  string    `json:"operation"` // spend, peek, refund or debit
	Enforced   bool      `json:"enforced"`
	Left       int64     `json:"left"` // now; -1: not counted
	Refuses    bool      `json:"refuses"`
	Penalized  bool      `json:"penalized"`
	ResetAfter float64   `json:"reset_after"`           // in seconds
	RetryAfter float64   `json:"retry_after,omitempty"` // in seconds
	Degraded   string    `json:"degraded,omitempty"`    // why the store could not be asked
}

// VerdictView is what the request would get.
type VerdictView struct {
	Outcome    string  `json:"outcome"`
	Refused    bool    `json:"refused"`
	Rule       string  `json:"rule,omitempty"` // that decided
	Status     int     `json:"status"`         // of HTTP
	Reason     string  `json:"reason,omitempty"`
	RetryAfter float64 `json:"retry_after,omitempty"` // in seconds
	Degraded   string  `json:"degraded,omitempty"`
}

// AnswersView is what both doors would answer.
type AnswersView struct {
	RLS      json.RawMessage `json:"rls"`
	ExtAuthz json.RawMessage `json:"ext_authz"`
}

// explain serves POST /v1/explain.
func (a *API) explain(c *call) (any, *Problem) {
	var ask ExplainRequest
	wrong := c.read(&ask)
	if wrong != nil {
		return nil, wrong
	}
	req, wrong := a.asked(&ask)
	if wrong != nil {
		return nil, wrong
	}
	v := new(engine.Verdict)
	how := a.Engine.Explain(c.ctx, req, v)
	answer := Explained{
		Domain: req.Domain, Known: v.Match.Known, Attributes: []AttributeView{}, Readings: []string{}, Considered: []ConsideredView{}, Factor: 1,
		Charges: charges(v), Verdict: verdictOf(v), Client: clientOf(req, v),
	}
	if how != nil {
		answer.take(how)
	}
	var err error
	answer.Answers.RLS, answer.Answers.ExtAuthz, err = a.Doors.Answer(req, v)
	if err != nil {
		return nil, problem(http.StatusInternalServerError, "%v", err)
	}
	return answer, nil
}

// asked is the request that is to be explained.
func (a *API) asked(ask *ExplainRequest) (*descriptors.Request, *Problem) {
	var req *descriptors.Request
	var err error
	switch {
	case (ask.RLS == nil) == (ask.HTTP == nil):
		return nil, bad("give one of rls (a RateLimitRequest as JSON) and http (method, path, headers, peer)")
	case ask.HTTP == nil:
		req, err = a.Doors.RLS(ask.RLS)
	case ask.HTTP.Method == "" || ask.HTTP.Path == "":
		return nil, bad("http needs a method and a path")
	case ask.HTTP.Peer != "" && !isAddress(ask.HTTP.Peer):
		return nil, bad("peer %q must be an address, such as 192.0.2.7", ask.HTTP.Peer)
	default:
		req = a.Doors.HTTP(ask.HTTP)
	}
	if err != nil {
		return nil, cannot("%v", err)
	}
	return req, nil
}

// isAddress reports whether a text is an address without a zone.
func isAddress(text string) bool {
	addr, err := netip.ParseAddr(text)
	return err == nil && addr.Zone() == ""
}

// take fills in how the request was matched.
func (x *Explained) take(how *descriptors.Explanation) {
	for _, attr := range how.Attributes {
		x.Attributes = append(x.Attributes, AttributeView{attr.Name, attr.Value, known(attr.Descriptor)})
	}
	x.Readings = append(x.Readings, how.Readings...)
	x.Factor = how.Factor
	for _, one := range how.Considered {
		x.Considered = append(x.Considered, ConsideredView{
			What: one.What, Name: one.Name, At: place(one.At), Scope: one.Scope, Action: one.Action, Pattern: one.Pattern, Reading: one.Reading,
			Descriptor: known(one.Descriptor), Won: one.Won, BeatenBy: one.BeatenBy, BeatenAt: place(one.BeatenAt), Because: one.Because,
		})
	}
}

// known is the number of a descriptor; nil: none.
func known(descriptor int) *int {
	if descriptor < 0 {
		return nil
	}
	return &descriptor
}

// place is where something was written.
func place(at descriptors.Pos) string {
	switch {
	case at == descriptors.Pos{}:
		return ""
	case at.File == "":
		return fmt.Sprintf("line %d", at.Line)
	case at.Line == 0:
		return at.File
	}
	return fmt.Sprintf("%s:%d", at.File, at.Line)
}

// clientOf is who a request over HTTP was taken for.
func clientOf(req *descriptors.Request, v *engine.Verdict) *ClientView {
	if req.Subject == nil {
		return nil
	}
	c := &ClientView{
		User: v.Client.User, Tenant: v.Client.Tenant, Tier: v.Client.Tier, APIKey: v.Client.Key, Evidence: v.Client.By.String(),
		Authenticated: v.Client.Authenticated,
	}
	if v.Client.Address.IsValid() {
		c.Address = v.Client.Address.String()
	}
	return c
}

var operations = [...]string{limit.Spend: "spend", limit.Peek: "peek", limit.Refund: "refund", limit.Debit: "debit"}

// charges are what the request would be charged.
func charges(v *engine.Verdict) []ChargeView {
	all := []ChargeView{}
	for i := range v.Decisions {
		c, d, t := &v.Match.Charges[i], &v.Decisions[i], &v.Match.Terms[i]
		all = append(all, ChargeView{
			Rule: t.Effect.Rule, Key: c.Key, Limit: limitView(&c.Limit, t.Effect), Cost: c.Cost, Operation: operations[c.Op], Enforced: c.Mode == limit.Enforced,
			Left: v.Left(i), Refuses: d.Outcome == limit.Refused, Penalized: d.Penalized, ResetAfter: seconds(d.ResetAfter),
			RetryAfter: seconds(d.RetryAfter), Degraded: d.Reason,
		})
	}
	return all
}

// verdictOf is what the request would get.
func verdictOf(v *engine.Verdict) VerdictView {
	view := VerdictView{
		Outcome: v.Outcome.String(), Refused: v.Refused, Status: v.HTTPStatus, RetryAfter: seconds(v.RetryAfter), Degraded: v.Degraded,
	}
	if e := v.Effect; e != nil {
		view.Rule, view.Reason = e.Rule, e.Reason
	}
	if v.Malformed != nil {
		view.Reason = v.Malformed.Message
	}
	if v.Excess != "" {
		view.Reason = "the request asks for more than one request may: " + v.Excess
	}
	return view
}

func seconds(d time.Duration) float64 { return d.Seconds() }

// limitView is a limit as answers show it. Where its windows are those of a calendar, the effect knows which.
func limitView(l *limit.Limit, e *descriptors.Effect) LimitView {
	view := LimitView{Name: l.Name, Count: l.Count, Per: l.Window.String(), Algorithm: l.Algorithm.String()}
	if l.Algorithm.HasBurst() {
		view.Burst = l.Burst
	}
	if e.Calendar != 0 {
		view.Per = e.Calendar.String()
	}
	return view
}
