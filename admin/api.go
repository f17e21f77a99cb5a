package admin

import (
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/profiles"
)

// sources are the files whose comments describe requests and answers.
//
//go:embed counters.go events.go explain.go profiles.go rules.go sidecars.go stats.go
var sources embed.FS

// Roles are the words of the roles of the API.
var Roles = httpapi.Roles{"view", "operate"}

// TokenFile is how the file of tokens is written.
var TokenFile = httpapi.TokenFile{Variable: "ADMIN_TOKEN_FILE", Roles: Roles}

// API is what the debug port serves under /v1.
type API struct {
	Access   httpapi.Access
	Engine   *engine.Engine
	Profiles *profiles.Store
	Doors    Doors
	InUse    func() InUse
	Config   func() ConfigView
	Counted  func() StatsView // since the start; who asks, the time and the rules are filled in here
	// Forget makes all sidecars forget what they know of the counters that an operator's change touches, and what they
	// count themselves of the keys that it made full.
	Forget   func(ctx context.Context, touched, reset []string) error
	Top      *live.Top                                         // nil: keys are not ranked
	TopOfAll TopOfAll                                          // required with Top
	Sidecars func(ctx context.Context) ([]SidecarView, string) // every sidecar that lives, and what is not known
	Away     func(ctx context.Context) string                  // why the store does not answer; nil: it does
	Events   *live.Feed
	// Decision finds a decision that a sidecar has kept, nil: none of those that answer. Required.
	Decision   func(ctx context.Context, id string) (found *live.Decision, missing []string, err error)
	EventsRole httpapi.Role    // that events and decisions need; NoRole: they are not served
	Stopping   <-chan struct{} // closed when streams have to end

	Log *slog.Logger     // gets a line for each change
	Now func() time.Time // default time.Now
}

const about = "What an operator asks of a running sidecar, on its debug port. Without ADMIN_TOKEN_FILE and " +
	"ADMIN_TLS_CLIENT_CA it answers the sidecar's own machine only. A change is in force on all sidecars within a " +
	"second."

// Operations are all operations of the API.
func (a *API) Operations() *httpapi.API {
	if a.Now == nil {
		a.Now = time.Now
	}
	if a.Away == nil {
		a.Away = func(context.Context) string { return "" }
	}
	a.Access.Roles, a.Access.TokenFile, a.Access.ClientCA = Roles, TokenFile.Variable, "ADMIN_TLS_CLIENT_CA"
	api := httpapi.New(httpapi.Config{
		Title: "Spillway admin API", About: about, Access: a.Access, Within: 5 * time.Second, MaxBody: 1 << 20,
		NUL:     true,
		Sources: []fs.FS{sources, profiles.Sources, live.Sources}, Problem: unavailable,
	})
	a.addReads(api)
	a.addChanges(api)
	return api
}

func (a *API) addReads(api *httpapi.API) {
	get := func(path, summary, about string) httpapi.Op {
		return httpapi.Op{Method: "GET", Path: path, Role: httpapi.View, Summary: summary, About: about}
	}
	httpapi.Add(api, httpapi.Op{
		Method: "POST", Path: "/v1/explain", Role: httpapi.View, Summary: "Why would this request be refused?",
		About: "Answers what a request would get now, and why. It charges nothing.",
	}, a.explain)
	httpapi.Add(api, get("/v1/usage", "What has this client left?",
		"Lists the counters of an identity, or of a key, with what is left on each."), a.usage)
	httpapi.Add(api, get("/v1/rules", "Which rules are in use?",
		"Lists the limits, blocks and allows in use, with where they are written."), a.rules)
	httpapi.Add(api, get("/v1/config", "Which settings are in use?",
		"Lists all variables with their values. Secrets are hidden."), a.config)
	httpapi.Add(api, get("/v1/top", "Who is limited now?",
		"Lists the keys that are asked for and refused most, by a sketch of bounded size."), a.top)
	httpapi.Add(api, get("/v1/sidecars", "Which rules does each sidecar run?",
		"Lists every sidecar that shares the store, with its version, its rules and what is degraded."), a.sidecars)
	httpapi.Add(api, get("/v1/stats", "What does this sidecar decide?",
		"Counts what this sidecar decided since its start, by outcome and by rule, "+
			"with how long its store takes and the state of its breakers."),
		a.stats)
	events := get("/v1/events", "Refusals as they happen.",
		"A stream of server-sent events: `refusal` with an Event, and `dropped` with a count where "+
			"some were left out. At most 100 events a second.")
	events.Role = a.EventsRole
	decision := get("/v1/decision", "Why was this request refused?",
		"Looks up a refusal, or a decision that was made without the shared store, of the last minutes, on all "+
			"sidecars that share the store. Of a flood, a sample is kept. It has the role of ADMIN_EVENTS.")
	decision.Role = a.EventsRole
	httpapi.Add(api, decision, a.decision)
	httpapi.AddStream[eventsRequest, live.Event](api, events, a.events)
}

func (a *API) addChanges(api *httpapi.API) {
	post := func(path, summary, about string) httpapi.Op {
		return httpapi.Op{Method: "POST", Path: path, Role: httpapi.Operate, Summary: summary, About: about}
	}
	httpapi.Add(api, post("/v1/block", "Refuse all requests of an identity.", ""), a.block)
	httpapi.Add(api, post("/v1/unblock", "End a block.", ""), a.unblock)
	httpapi.Add(api, post("/v1/tier", "Give an identity a tier, or limits of its own.", "What is left out stays."),
		a.tier)
	httpapi.Add(api, post("/v1/reset", "Make counters full.", "By identity or by key."), a.reset)
	httpapi.Add(api, post("/v1/pardon", "End the cool-downs of an identity.",
		"Forgets its refusals under every penalty."), a.pardon)
}

// unavailable is an error of the store as a caller sees it.
func unavailable(err error) *httpapi.Problem {
	return httpapi.NewProblem(http.StatusServiceUnavailable, "%v", err)
}

// failed logs that a change failed, and returns why.
func (a *API) failed(ctx context.Context, action string, identity any, err error) error {
	a.Log.Warn("a change by an operator failed", "action", action, "who", httpapi.CallerOf(ctx).Name, "whom",
		jsonText(identity), "error", err)
	return err
}

// logChange logs what a caller has changed.
func (a *API) logChange(ctx context.Context, action string, identity, before, after any) {
	c := httpapi.CallerOf(ctx)
	a.Log.Info("changed by an operator", "action", action, "who", c.Name, "from", c.From,
		"whom", jsonText(identity), "before", jsonText(before), "after", jsonText(after))
}

// jsonText is a document on one line, for the log.
func jsonText(document any) string {
	text, err := json.Marshal(document)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
