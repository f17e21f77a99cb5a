package sidecar

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/telemetry"
	"github.com/spillway-mesh/spillway/test/must"
)

// watched is how many allocations an observer makes for an admitted request with these headers, with what begins it.
func watched(t *testing.T, begin func(context.Context) context.Context, o engine.Observer, headers ...string) float64 {
	t.Helper()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(headers...))
	req, v := new(descriptors.Request), new(engine.Verdict)
	return testing.AllocsPerRun(200, func() { o(begin(ctx), req, v) })
}

func TestTracesThatNobodySamplesCostLittle(t *testing.T) {
	s := begin(t, twoPerYear)
	tracer := must.Get(s.reports.telemetry.Tracer(telemetry.TraceConfig{Rate: 1, Propagators: []string{"tracecontext",
		"b3"}, Log: s.reports.log}))(t)
	defer tracer.Close(t.Context())
	got := watched(t, tracer.Decide, telemetry.Watch(nil), "traceparent",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	if got > 4 {
		t.Errorf("a decision whose caller does not sample makes %v allocations, want at most 4", got)
	}
	trips := testing.AllocsPerRun(100, func() {
		if tracer.Trip(t.Context(), "server", 1) != nil {
			t.Error("a trip without a decision's span is traced")
		}
	})
	if trips > 0 {
		t.Errorf("a trip that is not traced makes %v allocations, want none", trips)
	}
}

func TestALogOfDecisionsThatIsNotWantedCostsNothing(t *testing.T) {
	s := begin(t, twoPerYear)
	log := s.reports.telemetry.DecisionLog(telemetry.DecisionLogConfig{All: true, Log: s.reports.log})
	defer log.Close()
	same := func(ctx context.Context) context.Context { return ctx }
	if got := watched(t, same, telemetry.Watch(log)); got > 0 {
		t.Errorf("a decision that is not logged makes %v allocations, want none", got)
	}
}

// silent takes connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var all sync.WaitGroup
	all.Go(func() {
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open = append(open, c)
		}
		for _, c := range open {
			c.Close()
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// TestACollectorThatHangsHoldsUpNobody: what waited for the collector would wait for an hour, or forever.
func TestACollectorThatHangsHoldsUpNobody(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			at := silent(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+at)
			t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000") // milliseconds
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
			t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "3600000")
			s := begin(t, twoPerYear, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+at, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol)
			conn := dial(t, s.Addresses().GRPC)
			for i := range 50 {
				expectCodes(t, conn, fmt.Sprint("user", i), codeOK)
			}
			stopping := time.Now()
			s.halt(t)
			t.Logf("stopping took %v", time.Since(stopping))
		})
	}
}

func TestTheLastSpansHaveTheTimeThatIsLeft(t *testing.T) {
	began := time.Unix(100, 0)
	for after, want := range map[time.Duration]time.Duration{
		0: time.Second, 2 * time.Second: time.Second, 3500 * time.Millisecond: 400 * time.Millisecond,
		time.Minute: 100 * time.Millisecond,
	} {
		s := new(Sidecar)
		s.drained.Store(&began)
		if got := s.flushTime(began.Add(after)); got != want {
			t.Errorf("%v after stopping began the spans have %v, want %v", after, got, want)
		}
	}
	s := &Sidecar{cfg: settings.Config{Listen: settings.Listen{DrainDelay: time.Minute}}}
	s.drained.Store(&began)
	if got := s.flushTime(began.Add(time.Minute)); got != time.Second {
		t.Errorf("after a long DRAIN_DELAY the spans have %v, want a second", got)
	}
	if got := new(Sidecar).flushTime(began); got != time.Second {
		t.Errorf("without a drain the spans have %v, want a second", got)
	}
}
