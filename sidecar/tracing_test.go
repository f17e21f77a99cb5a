package sidecar

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/telemetry"
)

func TestWhenRequestsAreTraced(t *testing.T) {
	const endpoint, otlp = "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318", "OTEL_TRACES_EXPORTER=otlp"
	for environ, want := range map[string]bool{
		"":                     false,
		"TRACING_ENABLED=true": true,
		"TRACING_ENABLED=false " + endpoint + " " + otlp: false,
		endpoint: true,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://collector:4318/v1/traces": true,
		otlp:                                true,
		"OTEL_TRACES_EXPORTER=console,otlp": true,
		"OTEL_TRACES_EXPORTER=zipkin " + endpoint:             false,
		"OTEL_TRACES_EXPORTER=none TRACING_ENABLED=true":      false,
		"OTEL_SDK_DISABLED=TRUE TRACING_ENABLED=true":         false,
		"OTEL_SDK_DISABLED=maybe TRACING_ENABLED=true":        true,
		"OTEL_SERVICE_NAME=x OTEL_TRACES_SAMPLER=always_on":   false,
		"TRACING_SAMPLING_RATE=0.5 TRACING_SERVICE_NAME=mine": false,
	} {
		cfg := fromEnv(t, strings.Fields(environ)...)
		if got := cfg.Tracing.on(); got != want {
			t.Errorf("with %q requests are traced: %v, want %v", environ, got, want)
		}
	}
}

func TestWhichProtocolSpansTake(t *testing.T) {
	for environ, want := range map[string]bool{
		"":                                 false,
		"TRACING_EXPORTER_PROTOCOL=grpc":   true,
		"TRACING_EXPORTER_PROTOCOL=GRPC":   true,
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc": true,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf TRACING_EXPORTER_PROTOCOL=grpc":             false,
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json":        false,
		"OTEL_EXPORTER_OTLP_PROTOCOL=smoke TRACING_EXPORTER_PROTOCOL=grpc":                     true,
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf":    true,
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=carrier-pigeon OTEL_EXPORTER_OTLP_PROTOCOL=grpc":   true,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 OTEL_EXPORTER_OTLP_PROTOCOL=GRPC":   true,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 TRACING_EXPORTER_PROTOCOL=http":     false,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=unknown": false,
	} {
		cfg := fromEnv(t, strings.Fields(environ)...)
		if got := cfg.Tracing.grpc(); got != want {
			t.Errorf("with %q spans go over gRPC: %v, want %v", environ, got, want)
		}
	}
}

func TestSettingsOfTracesThatAreWrong(t *testing.T) {
	for environ, want := range map[string]string{
		"TRACING_ENABLED=maybe":             `TRACING_ENABLED: "maybe" is not true or false`,
		"TRACING_EXPORTER_PROTOCOL=thrift":  `TRACING_EXPORTER_PROTOCOL: "thrift" is not http or grpc`,
		"TRACING_SAMPLING_RATE=2":           `TRACING_SAMPLING_RATE: "2" is not a number from 0 to 1`,
		"OTEL_BSP_MAX_QUEUE_SIZE=-1":        `OTEL_BSP_MAX_QUEUE_SIZE: "-1" is not a number above 0`,
		"LOG_DECISIONS=some":                `LOG_DECISIONS: "some" is not one of off, refused, all`,
		"LOG_DECISIONS_RATE=1/1000":         `LOG_DECISIONS_RATE: "1/1000" is not a number such as 0.8`,
		"LOG_DECISIONS_RATE=1.5":            `LOG_DECISIONS_RATE: "1.5" is not a number from 0 to 1`,
		"OTEL_EXPORTER_OTLP_PROTOCOL=smoke": "",
	} {
		_, err := FromEnvironment([]string{environ}, "sidecar")
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %q", environ, err, want)
		}
	}
}

// admitting is an engine with rules, without a store to wait for.
func admitting(t *testing.T) *Sidecar {
	t.Helper()
	s := begin(t, twoPerHour)
	return s.Sidecar
}

// costs is how many allocations a decision makes behind a door, with these headers.
func costs(t *testing.T, d interface {
	Decide(ctx context.Context, req *descriptors.Request, v *engine.Verdict)
}, headers ...string,
) float64 {
	t.Helper()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(headers...))
	req := &descriptors.Request{Domain: "shop", Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: "user", Value: "alice"}}}}}
	var v engine.Verdict
	return testing.AllocsPerRun(200, func() { d.Decide(ctx, req, &v) })
}

func TestTracesThatAreOffCostNothing(t *testing.T) {
	s := admitting(t)
	plain := costs(t, s.engine)
	parent := []string{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
	if got := costs(t, s.watch(doorRLS), parent...); got != plain {
		t.Errorf("a decision makes %v allocations where nothing is traced, want the engine's own %v", got, plain)
	}
	tracer, err := s.telemetry.Tracer(telemetry.TraceConfig{Rate: 1, Propagators: []string{"tracecontext", "b3"}, Log: s.log})
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close(t.Context())
	on := watched{engine: s.engine, door: doorRLS, tracer: tracer}
	if got := costs(t, on, parent...); got > plain+4 {
		t.Errorf("a decision whose caller does not sample makes %v allocations, want at most 4 more than the engine's own %v", got, plain)
	}
}

func TestALogOfDecisionsThatIsNotWantedCostsNothing(t *testing.T) {
	s := admitting(t)
	plain := costs(t, s.engine)
	log := s.telemetry.DecisionLog(telemetry.DecisionLogConfig{All: true, Log: s.log})
	defer log.Close()
	if got := costs(t, watched{engine: s.engine, door: doorRLS, decisions: log}); got != plain {
		t.Errorf("a decision that is not logged makes %v allocations, want the engine's own %v", got, plain)
	}
}

// silent takes connections and never says a word.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

func TestACollectorThatHangsHoldsUpNobody(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			at := silent(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+at)
			s := begin(t, twoPerHour, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+at, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol)
			conn := dial(t, s.Addresses().GRPC)
			start := time.Now()
			for i := range 50 {
				expectCodes(t, conn, fmt.Sprint("user", i), codeOK)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("50 decisions took %v", took)
			}
			stopping := time.Now()
			s.halt(t)
			if took := time.Since(stopping); took > 2500*time.Millisecond {
				t.Errorf("stopping took %v, want little more than a second", took)
			}
		})
	}
}

func TestTheLastSpansHaveTheTimeThatIsLeft(t *testing.T) {
	began := time.Unix(100, 0)
	for after, want := range map[time.Duration]time.Duration{
		0: time.Second, 2 * time.Second: time.Second, 3500 * time.Millisecond: 400 * time.Millisecond, time.Minute: 100 * time.Millisecond,
	} {
		s := new(Sidecar)
		s.drained.Store(&began)
		if got := s.flushTime(began.Add(after)); got != want {
			t.Errorf("%v after stopping began the spans have %v, want %v", after, got, want)
		}
	}
	s := &Sidecar{cfg: Config{Listen: Listen{DrainDelay: time.Minute}}}
	s.drained.Store(&began)
	if got := s.flushTime(began.Add(time.Minute)); got != time.Second {
		t.Errorf("after a long DRAIN_DELAY the spans have %v, want a second", got)
	}
	if got := new(Sidecar).flushTime(began); got != time.Second {
		t.Errorf("without a drain the spans have %v, want a second", got)
	}
}
