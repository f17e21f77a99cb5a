package telemetry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/test/must"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

const (
	callerTrace = "0af7651916cd43dd8448eb211c80319c"
	callerSpan  = "b7ad6b7169203331"
)

// traced is a tracer whose spans a test sees.
type traced struct {
	*Tracer
	out *tracetest.InMemoryExporter
	log *bytes.Buffer
}

func newTraced(t *testing.T, cfg TraceConfig) traced {
	t.Helper()
	out, log := tracetest.NewInMemoryExporter(), new(bytes.Buffer)
	cfg.exporter, cfg.Log = out, slog.New(slog.NewTextHandler(log, nil))
	if cfg.Propagators == nil {
		cfg.Propagators = []string{"tracecontext", "b3"}
	}
	tracer := must.Get(New(Config{}).Tracer(cfg))(t)
	t.Cleanup(func() { tracer.Close(context.Background()) })
	return traced{tracer, out, log}
}

// ended are the spans so far, the first to end first.
func (r traced) ended(t *testing.T) tracetest.SpanStubs {
	t.Helper()
	must.Do(t, r.provider.ForceFlush(t.Context()))
	return r.out.GetSpans()
}

// called is the context of a gRPC call with these headers, in pairs.
func called(t *testing.T, headers ...string) context.Context {
	t.Helper()
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs(headers...))
}

func TestACallersSpanIsFoundInEachForm(t *testing.T) {
	for name, c := range map[string]struct {
		headers     []string
		propagators []string
		found       bool
	}{
		"w3c": {[]string{"traceparent", "00-" + callerTrace + "-" + callerSpan + "-01"}, nil,
			true},
		"b3, one header": {[]string{"b3", callerTrace + "-" + callerSpan + "-1"}, nil, true},
		"b3, many headers": {[]string{"x-b3-traceid", callerTrace, "x-b3-spanid", callerSpan, "x-b3-sampled",
			"1"}, nil, true},
		"many headers, b3multi": {[]string{"x-b3-traceid", callerTrace, "x-b3-spanid", callerSpan, "x-b3-sampled",
			"1"}, []string{"b3multi"}, true},
		"b3, where only w3c counts": {[]string{"b3", callerTrace + "-" + callerSpan + "-1"}, []string{"tracecontext"},
			false},
		"w3c, where only b3 counts": {[]string{"traceparent", "00-" + callerTrace + "-" + callerSpan + "-01"},
			[]string{"baggage", "b3"}, false},
		"nothing counts": {[]string{"traceparent", "00-" + callerTrace + "-" + callerSpan + "-01"},
			[]string{"none"}, false},
		"w3c that cannot be read, b3": {[]string{"traceparent", "00-xyz", "b3", callerTrace + "-" + callerSpan + "-1"},
			nil, true},
	} {
		r := newTraced(t, TraceConfig{Rate: 1, Propagators: c.propagators})
		trace.SpanFromContext(r.Decide(called(t, c.headers...))).End()
		all := r.ended(t)
		if len(all) != 1 {
			t.Errorf("%s: %d spans, want 1", name, len(all))
			continue
		}
		parent := all[0].Parent
		if got := parent.TraceID().String() == callerTrace && parent.SpanID().String() == callerSpan; got != c.found {
			t.Errorf("%s: the parent is %s of trace %s; found is %v, want %v", name, parent.SpanID(), parent.TraceID(),
				got, c.found)
		}
	}
}

func TestTheCallerSamples(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   TraceConfig
		flags string // of the caller; empty: none
		want  int
	}{
		"a caller that samples":                  {TraceConfig{}, "01", 1},
		"a caller that does not":                 {TraceConfig{Rate: 1}, "00", 0},
		"no caller, and all are sampled":         {TraceConfig{Rate: 1}, "", 1},
		"no caller, and none is sampled":         {TraceConfig{}, "", 0},
		"a caller that does not, by a b3 header": {TraceConfig{Rate: 1}, "b3", 0},
	} {
		r := newTraced(t, c.cfg)
		headers := []string{"traceparent", "00-" + callerTrace + "-" + callerSpan + "-" + c.flags}
		switch c.flags {
		case "":
			headers = nil
		case "b3":
			headers = []string{"b3", callerTrace + "-" + callerSpan + "-0"}
		}
		ctx := r.Decide(called(t, headers...))
		span := trace.SpanFromContext(ctx)
		ended := r.Trip(ctx, "10.0.0.1:6379", 1)
		if (ended != nil) != (c.want == 1) || span.IsRecording() != (c.want == 1) {
			t.Errorf("%s: a trip is traced: %v, the decision: %v, want %v", name, ended != nil, span.IsRecording(),
				c.want == 1)
		}
		span.End()
		if got := len(r.ended(t)); got != c.want {
			t.Errorf("%s: %d spans, want %d", name, got, c.want)
		}
	}
}

func TestTheEnvironmentsSamplerGoesFirst(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	r := newTraced(t, TraceConfig{Sampler: "always_on"})
	trace.SpanFromContext(r.Decide(called(t, "traceparent", "00-"+callerTrace+"-"+callerSpan+"-00"))).End()
	if got := len(r.ended(t)); got != 1 {
		t.Errorf("%d spans, want 1: the sampler takes all, whatever the caller says", got)
	}
}

// attributes are those of a span.
func attributes(s *tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

func TestSpansTellTheConfigurationsWords(t *testing.T) {
	r := newTraced(t, TraceConfig{Rate: 1,
		Source: Source{Service: "limits", Namespace: "edge", Instance: "one", Version: "v1"}})
	ctx := r.Decide(t.Context())
	r.Trip(ctx, "10.0.0.1:6379", 3)("")
	r.Trip(ctx, "10.0.0.2:6379", 1)("timeout")
	v := &engine.Verdict{Degraded: "timeout"}
	v.Outcome, v.Effect = engine.Refused, &descriptors.Effect{Rule: "bad\xffname", Scope: "user"}
	v.Match.Domain = &descriptors.CompiledDomain{Name: "shop"}
	Watch(nil)(ctx, &descriptors.Request{Door: "rls"}, v)
	all := r.ended(t)
	if len(all) != 3 {
		t.Fatalf("%d spans, want 3", len(all))
	}
	for i, want := range []map[string]string{
		{"db.system": "redis", "db.system.name": "redis", "spillway.shard": "10.0.0.1:6379", "spillway.charges": "3",
			"spillway.outcome": "decided"},
		{"db.system": "redis", "db.system.name": "redis", "spillway.shard": "10.0.0.2:6379", "spillway.charges": "1",
			"spillway.outcome": "undecided", "spillway.reason": "timeout"},
		{"spillway.door": "rls", "spillway.domain": "shop", "spillway.rule": "bad_name", "spillway.scope": "user",
			"spillway.outcome": "refused", "spillway.degraded": "timeout"},
	} {
		got := attributes(&all[i])
		for key, value := range want {
			if got[key] != value {
				t.Errorf("span %d: %s is %q, want %q", i, key, got[key], value)
			}
		}
		if len(got) != len(want) {
			t.Errorf("span %d tells %v, want %v", i, got, want)
		}
	}
	if all[0].Status.Code != codes.Unset || all[1].Status.Code != codes.Error ||
		all[0].Parent.SpanID() != all[2].SpanContext.SpanID() {
		t.Errorf("statuses %v and %v, parent %v of the trip, want unset, error, and the decision", all[0].Status,
			all[1].Status, all[0].Parent.SpanID())
	}
	for _, want := range []attribute.KeyValue{
		attribute.String("service.name", "limits"), attribute.String("service.namespace", "edge"),
		attribute.String("service.instance.id", "one"), attribute.String("service.version", "v1"),
	} {
		if got, _ := all[0].Resource.Set().Value(want.Key); got != want.Value {
			t.Errorf("the resource's %s is %q, want %q", want.Key, got.String(), want.Value.String())
		}
	}
}

func TestHeadersOfARequestOverHTTPNameItsTrace(t *testing.T) {
	r := newTraced(t, TraceConfig{})
	h := r.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		trace.SpanFromContext(r.Decide(q.Context())).End()
	}))
	q := httptest.NewRequest("POST", "/json", nil)
	q.Header.Set("traceparent", "00-"+callerTrace+"-"+callerSpan+"-01")
	h.ServeHTTP(httptest.NewRecorder(), q)
	all := r.ended(t)
	if len(all) != 1 || all[0].Parent.SpanID().String() != callerSpan {
		t.Errorf("spans %v, want one below %s", all, callerSpan)
	}
}

// stuck is an exporter that fails or hangs.
type stuck struct {
	err  error
	hang bool
}

func (s stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	if s.hang {
		<-ctx.Done()
	}
	return s.err
}

func (s stuck) Shutdown(context.Context) error { return nil }

func TestSpansThatNobodyTakesAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		tracer := must.Get(m.Tracer(TraceConfig{Rate: 1, Queue: 10,
			exporter: stuck{hang: true, err: errors.New("no answer")}, Log: slog.New(slog.DiscardHandler)}))(t)
		for range 1000 {
			// a span that waited would never return: the bubble would be dead
			trace.SpanFromContext(tracer.Decide(t.Context())).End()
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tracer.Close(ctx)
		if took := time.Since(start); took > 1200*time.Millisecond {
			t.Errorf("closing took %v, want a second", took)
		}
		synctest.Wait()
		lines := scrape(t, m)
		expectLine(t, lines, `spillway_spans_dropped_total{reason="queue"} 990`)
		expectLine(t, lines, `spillway_spans_dropped_total{reason="export"} 10`)
		expectLine(t, lines, `spillway_spans_exported_total 0`)
	})
}

func TestAFailedExportIsLoggedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := New(Config{})
		tracer := must.Get(m.Tracer(TraceConfig{Rate: 1, exporter: stuck{err: errors.New("connection refused")},
			Log: NewLogger(LogConfig{Out: &log})}))(t)
		for range 5 {
			trace.SpanFromContext(tracer.Decide(t.Context())).End()
			must.Do(t, tracer.provider.ForceFlush(t.Context()))
		}
		tracer.Close(t.Context())
		if got := strings.Count(log.String(), "spans could not be sent"); got != 1 ||
			!strings.Contains(log.String(), "connection refused") {
			t.Errorf("told %d times, want once, with the reason:\n%s", got, log.String())
		}
		expectLine(t, scrape(t, m), `spillway_spans_dropped_total{reason="export"} 5`)
	})
}
