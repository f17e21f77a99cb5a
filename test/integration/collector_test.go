package integration

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	metricsv1 "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/spillway-mesh/spillway/test/servers"
)

// collector takes spans and metrics in over OTLP, by gRPC and by HTTP.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	grpc, http string // host:port

	mu    sync.Mutex // guards spans
	spans []span

	metrics metricsCollector
}

// span is a span as it was received, with who sent it.
type span struct {
	*tracev1.Span
	service string // service.name of the sender
	over    string // grpc or http
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := new(collector)
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("listen for spans: %v", err)
		}
		return l
	}
	overGRPC, overHTTP := listen(), listen()
	c.grpc, c.http = overGRPC.Addr().String(), overHTTP.Addr().String()
	g := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(g, c)
	metricsv1.RegisterMetricsServiceServer(g, &c.metrics)
	h := &http.Server{Handler: http.HandlerFunc(c.post)}
	var done sync.WaitGroup
	done.Go(func() { g.Serve(overGRPC) })
	done.Go(func() { h.Serve(overHTTP) })
	t.Cleanup(func() {
		g.Stop()
		h.Close()
		done.Wait()
	})
	return c
}

// Export takes spans over gRPC.
func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (
	*collectorv1.ExportTraceServiceResponse, error) {
	c.take(r, "grpc")
	return new(collectorv1.ExportTraceServiceResponse), nil
}

// post takes spans over HTTP.
func (c *collector) post(w http.ResponseWriter, r *http.Request) {
	err := c.read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collector) read(r *http.Request) error {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = unzipped
	}
	wire, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	switch r.URL.Path {
	case "/v1/traces":
		request := new(collectorv1.ExportTraceServiceRequest)
		err = proto.Unmarshal(wire, request)
		c.take(request, "http")
	case "/v1/metrics":
		request := new(metricsv1.ExportMetricsServiceRequest)
		err = proto.Unmarshal(wire, request)
		c.metrics.take(request, "http")
	default:
		err = fmt.Errorf("nothing is taken at %s", r.URL.Path)
	}
	return err
}

func (c *collector) take(r *collectorv1.ExportTraceServiceRequest, over string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range r.GetResourceSpans() {
		service := ""
		for _, a := range from.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, span{s, service, over})
			}
		}
	}
}

// of are the spans of one trace.
func (c *collector) of(trace string) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []span
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == trace {
			all = append(all, s)
		}
	}
	return all
}

// chain waits for a span of that name in a trace and so many with those above it, and returns them up to one whose
// parent was not received.
func (c *collector) chain(t *testing.T, trace, name string, count int) []span {
	t.Helper()
	var links []span
	servers.Await(t, "a chain of spans up from "+name, func() error {
		links = nil
		all := c.of(trace)
		for at, found := byName(all, name); found; at, found = byID(all, at.GetParentSpanId()) {
			links = append(links, at)
		}
		if len(links) < count {
			return fmt.Errorf("the trace has %s", spansOf(all))
		}
		return nil
	})
	return links
}

func byName(all []span, name string) (span, bool) {
	for _, s := range all {
		if s.GetName() == name {
			return s, true
		}
	}
	return span{}, false
}

func byID(all []span, id []byte) (span, bool) {
	for _, s := range all {
		if string(s.GetSpanId()) == string(id) {
			return s, true
		}
	}
	return span{}, false
}

// spansOf lists spans for a failure's message.
func spansOf(all []span) string {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "\n%s %q id %x parent %x kind %v %v", s.service, s.GetName(), s.GetSpanId(),
			s.GetParentSpanId(), s.GetKind(), s.words())
	}
	return b.String()
}

// words are the attributes as text.
func (s span) words() map[string]string {
	all := map[string]string{}
	for _, a := range s.GetAttributes() {
		v := a.GetValue()
		all[a.GetKey()] = v.GetStringValue()
		if v.GetStringValue() == "" {
			all[a.GetKey()] = v.String()
		}
	}
	return all
}
