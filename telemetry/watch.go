package telemetry

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// The doors, as traces and the log of decisions call them.
const (
	DoorRLS      = "rls"
	DoorExtAuthz = "ext_authz"
	doorJSON     = "json"
)

// Decider decides. It is engine.Engine, and a script in tests.
type Decider interface {
	Decide(ctx context.Context, req *descriptors.Request, v *engine.Verdict)
}

// Watch is the engine behind a door, with a span and a line in the log for those decisions that are to have them.
type Watch struct {
	Engine    Decider
	Door      string       // DoorRLS or DoorExtAuthz
	Tracer    *Tracer      // nil: no spans
	Decisions *DecisionLog // nil: no lines
}

// Decide decides, and reports the decision.
func (w Watch) Decide(ctx context.Context, req *descriptors.Request, v *engine.Verdict) {
	start := time.Now()
	var span Span
	if w.Tracer != nil {
		ctx, span = w.Tracer.Decide(ctx)
		defer span.End()
	}
	w.Engine.Decide(ctx, req, v)
	logged := w.Decisions != nil && w.Decisions.Wants(v.Outcome())
	if !logged && !span.Recording() {
		return
	}
	told := summary(v)
	told.Door, told.Took, told.Trace = w.Door, time.Since(start), span.Trace()
	if ctx.Value(overJSON{}) != nil {
		told.Door = doorJSON
	}
	span.Tell(&told)
	if logged {
		w.Decisions.Write(told)
	}
}

// summary is what logs and traces may hold of a verdict: the configuration's words, and none of the client's.
func summary(v *engine.Verdict) Summary {
	s := Summary{Outcome: v.Outcome(), Status: v.HTTPStatus(), Degraded: v.Degraded, Held: held(v.Decisions)}
	if v.Match.Domain != nil {
		s.Domain = v.Match.Domain.Name
	}
	if e := v.Effect(); e != nil {
		s.Rule, s.Scope = e.Rule, e.Scope
	}
	return s
}

// overJSON marks the context of requests that came over HTTP.
type overJSON struct{}

// WatchJSON lets a Watch tell the decisions behind /json apart, and makes them part of their caller's traces. The tracer may be nil.
func WatchJSON(next http.Handler, tracer *Tracer) http.Handler {
	marked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), overJSON{}, true)))
	})
	if tracer == nil {
		return marked
	}
	return tracer.HTTP(marked)
}

// held reports whether all charges of a request were made by tokens on lease.
func held(decisions []limit.Decision) bool {
	for i := range decisions {
		if !decisions[i].Held {
			return false
		}
	}
	return len(decisions) > 0
}
