package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/httpapi"
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
	_    struct{}         `oneof:"rls http"`
	RLS  RateLimitRequest `json:"rls,omitempty"` // a RateLimitRequest of Envoy as JSON
	HTTP *HTTPRequest     `json:"http,omitempty"`
}

// RateLimitRequest is one of Envoy, as JSON.
type RateLimitRequest json.RawMessage

// UnmarshalJSON keeps the text.
func (r *RateLimitRequest) UnmarshalJSON(text []byte) error {
	return (*json.RawMessage)(r).UnmarshalJSON(text)
}

// Schema describes what schemathesis and clients may send. How a message is read, protobuf has defined: names in camel
// case are taken, too.
func (*RateLimitRequest) Schema() *httpapi.Schema {
	return httpapi.SchemaOf(`{"type": "object", "properties": {
	  "domain": {"type": "string"},
	  "descriptors": {"type": "array", "items": {"type": "object", "properties": {
	    "entries": {"type": "array", "items": {"type": "object",
		"properties": {"key": {"type": "string"}, "value": {"type": "string"}}}},
	    "limit": {"type": "object", "properties": {
	      "requests_per_unit": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 4294967295},
		{"type": "string"}]},
	      "unit": {"anyOf": [{"type": "string", "enum": ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH",
		"YEAR"]}, {"type": "integer"}]}}},
	    "hits_addend": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
	    "is_negative_hits": {"type": "boolean"}}}},
	  "hits_addend": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 4294967295}, {"type": "string"}]}}}`)
}

// HTTPRequest is a request as ext_authz gets it.
type HTTPRequest struct {
	Domain    string            `json:"domain,omitempty"`    // the domain; default: DEFAULT_DOMAIN, else the only one
	Method    string            `json:"method"`              // the method
	Path      string            `json:"path"`                // the path with its query
	Host      string            `json:"host,omitempty"`      // the host
	Headers   map[string]string `json:"headers,omitempty"`   // headers by name
	Peer      Address           `json:"peer,omitempty"`      // the address of the connection's other end
	Principal string            `json:"principal,omitempty"` // the principal of the peer's certificate
	Context   map[string]string `json:"context,omitempty"`   // context extensions of the route
	Client    *NamedClient      `json:"client,omitempty"`    // who asks, in place of credentials
}

// NamedClient is who asks, by names. What an API key of the rule file knows beside is filled in.
type NamedClient struct {
	User   string `json:"user,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Tier   string `json:"tier,omitempty"`
	APIKey string `json:"api_key,omitempty"` // the id of an API key
}

// Address is the text of an address.
type Address string

// Schema describes it.
func (*Address) Schema() *httpapi.Schema {
	return &httpapi.Schema{
		Description: "An address, such as 192.0.2.7.",
		AnyOf:       []*httpapi.Schema{{Type: "string", Format: "ipv4"}, {Type: "string", Format: "ipv6"}},
	}
}

// Explained is what a request would get, and why.
type Explained struct {
	Domain     string           `json:"domain"`
	Known      bool             `json:"known"` // the domain has rules
	Client     *ClientView      `json:"client,omitempty"`
	Attributes []AttributeView  `json:"attributes"`
	Readings   []string         `json:"readings"` // ways in which servers may read the path
	Factor     int64            `json:"factor"`   // what one hit takes from a rule without a cost of its own
	Considered []ConsideredView `json:"considered"`
	Charges    []ChargeView     `json:"charges"`
	Verdict    VerdictView      `json:"verdict"`
	Note       string           `json:"note,omitempty"` // what else may limit such requests
	Answers    AnswersView      `json:"answers"`
}

// ClientView is who a request was taken for, and by which evidence.
type ClientView struct {
	User          string `json:"user,omitempty"`
	Tenant        string `json:"tenant,omitempty"`
	Tier          string `json:"tier,omitempty"`
	APIKey        string `json:"api_key,omitempty"`
	Address       string `json:"address,omitempty"`
	Evidence      string `json:"evidence" one:"ip jwt api_key mtls named"` // what named the client; named: the question
	Authenticated bool   `json:"authenticated"`                            // the evidence was verified
	Fault         string `json:"fault,omitempty"`                          // why an API key is not accepted
}

// AttributeView is one attribute of the request.
type AttributeView struct {
	Name       string `json:"name"`
	Value      string `json:"value"`
	Descriptor *int   `json:"descriptor,omitempty"` // the descriptor that supplied it, from 0
}

// ConsideredView is a rule, node, cost, own limit or profile that the request meets.
type ConsideredView struct {
	What    string `json:"what" one:"rule node cost own profile"` // what it is
	Name    string `json:"name"`
	At      string `json:"at,omitempty"` // where it is written: file:line
	Scope   string `json:"scope,omitempty"`
	Action  string `json:"action,omitempty"`
	Pattern string `json:"pattern,omitempty"` // the endpoint pattern by which it matches
	// the reading of the path under which it matches, where there are several
	Reading    string `json:"reading,omitempty"`
	Descriptor *int   `json:"descriptor,omitempty"` // the descriptor that it matches, from 0
	Won        bool   `json:"won"`                  // it takes part in the decision
	BeatenBy   string `json:"beaten_by,omitempty"`  // what won in its place
	BeatenAt   string `json:"beaten_at,omitempty"`  // where that is written
	Because    string `json:"because,omitempty"`    // the comparison that decided
}

// ChargeView is one counter that the request would be charged on.
type ChargeView struct {
	Rule       string    `json:"rule"`
	Name       string    `json:"name"` // what headers call it
	Who        []Owner   `json:"who"`  // whom it counts
	Key        string    `json:"key"`  // the key of the counter
	Limit      LimitView `json:"limit"`
	Cost       int64     `json:"cost"`                                    // tokens that the request takes
	Operation  string    `json:"operation" one:"spend peek refund debit"` // spend, peek, refund or debit
	Enforced   bool      `json:"enforced"`                                // it can refuse the request
	Left       int64     `json:"left"`                                    // what is left now; -1: it is not counted
	Refuses    bool      `json:"refuses"`
	Penalized  bool      `json:"penalized"`             // a cool-down refuses
	ResetAfter float64   `json:"reset_after"`           // seconds
	RetryAfter float64   `json:"retry_after,omitempty"` // seconds
	Degraded   string    `json:"degraded,omitempty"`    // why the store could not be asked
}

// VerdictView is what the request would get.
type VerdictView struct {
	Outcome    string  `json:"outcome" one:"allowed refused blocked exempt shadowed no_limit unknown_domain malformed"`
	Refused    bool    `json:"refused"`
	Rule       string  `json:"rule,omitempty"` // the rule that decides
	Status     int     `json:"status"`         // the status of HTTP that the client would get
	Reason     string  `json:"reason,omitempty"`
	RetryAfter float64 `json:"retry_after,omitempty"` // seconds
	Degraded   string  `json:"degraded,omitempty"`    // why the store could not decide
}

// AnswersView is what both doors would answer.
type AnswersView struct {
	RLS      json.RawMessage `json:"rls"`       // the RateLimitResponse
	ExtAuthz json.RawMessage `json:"ext_authz"` // the CheckResponse
}

// explain serves POST /v1/explain.
func (a *API) explain(ctx context.Context, in *httpapi.Sent[ExplainRequest]) (*Explained, error) {
	req, err := a.asked(&in.Body)
	if err != nil {
		return nil, err
	}
	v := new(engine.Verdict)
	how := a.Engine.Explain(ctx, req, v)
	answer := &Explained{
		Domain: req.Domain, Known: v.Match.Known, Factor: 1, Charges: charges(v), Verdict: verdictOf(v),
		Client: clientOf(ctx, req, v),
	}
	if how != nil {
		answer.take(how)
	}
	if in.Body.HTTP != nil && v.Match.Domain != nil && len(v.Match.Domain.Written().Tree) > 0 {
		answer.Note = fmt.Sprintf("the domain %s also has descriptor trees, which this question does not ask: send a "+
			"RateLimitRequest on standard input, as in spillway explain <request.json", req.Domain)
	}
	answer.Answers.RLS, answer.Answers.ExtAuthz, err = a.Doors.Answer(req, v)
	if err != nil {
		return nil, httpapi.NewProblem(http.StatusInternalServerError, "%v", err)
	}
	return answer, nil
}

// asked is the request that is to be explained.
func (a *API) asked(ask *ExplainRequest) (*descriptors.Request, error) {
	if ask.HTTP != nil {
		return a.askedHTTP(ask.HTTP)
	}
	req, err := a.Doors.RLS(ask.RLS)
	if err != nil {
		return nil, httpapi.Cannot("%v", err)
	}
	return req, nil
}

// askedHTTP is a request over HTTP, in the only domain where it names none.
func (a *API) askedHTTP(ask *HTTPRequest) (*descriptors.Request, error) {
	req := a.Doors.HTTP(ask)
	if req.Domain != "" {
		return req, nil
	}
	d, err := a.domain("")
	if err != nil {
		return nil, err
	}
	ask.Domain = d.Name
	return a.Doors.HTTP(ask), nil
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
			What: one.What, Name: one.Name, At: live.Place(one.At), Scope: one.Scope, Action: one.Action,
			Pattern: one.Pattern, Reading: one.Reading,
			Descriptor: known(one.Descriptor), Won: one.Won, BeatenBy: one.BeatenBy, BeatenAt: live.Place(one.BeatenAt),
			Because: one.Because,
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

// clientOf is who a request over HTTP was taken for.
func clientOf(ctx context.Context, req *descriptors.Request, v *engine.Verdict) *ClientView {
	if req.Subject == nil {
		return nil
	}
	c := &ClientView{
		User: v.Client.User, Tenant: v.Client.Tenant, Tier: v.Client.Tier, APIKey: v.Client.Key,
		Evidence:      v.Client.By.String(),
		Authenticated: v.Client.Authenticated,
	}
	if v.Client.Address.IsValid() {
		c.Address = v.Client.Address.String()
	}
	if req.Evidence != nil && req.Evidence.Verified != nil {
		c.Evidence = "named"
	}
	if req.Evidence != nil && v.Match.Domain != nil {
		c.Fault = v.Match.Domain.KeyFault(ctx, req.Evidence)
	}
	return c
}

var operations = [...]string{limit.Spend: "spend", limit.Peek: "peek", limit.Refund: "refund", limit.Debit: "debit"}

// charges are what the request would be charged.
func charges(v *engine.Verdict) []ChargeView {
	var all []ChargeView
	for i := range v.Decisions {
		c, d, t := &v.Match.Charges[i], &v.Decisions[i], &v.Match.Terms[i]
		all = append(all, ChargeView{
			Rule: t.Effect.Rule, Name: t.Effect.Title(), Who: owners(t.Effect, c.Key), Key: c.Key,
			Limit: limitView(&c.Limit, t.Effect), Cost: c.Cost,
			Operation: operations[c.Op], Enforced: c.Mode == limit.Enforced,
			Left: v.Left(i), Refuses: d.Outcome == limit.Refused, Penalized: d.Penalized,
			ResetAfter: seconds(d.ResetAfter),
			RetryAfter: seconds(d.RetryAfter), Degraded: d.Reason,
		})
	}
	return all
}

// verdictOf is what the request would get.
func verdictOf(v *engine.Verdict) VerdictView {
	view := VerdictView{
		Outcome: v.Outcome.String(), Refused: v.Refused, Status: v.HTTPStatus, RetryAfter: seconds(v.RetryAfter),
		Degraded: v.Degraded,
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
