package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	metricsv1 "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	otlpv1 "go.opentelemetry.io/proto/otlp/metrics/v1"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// metricsCollector takes metrics in over OTLP, and keeps the newest of each name.
type metricsCollector struct {
	metricsv1.UnimplementedMetricsServiceServer

	mu   sync.Mutex // guards all below
	over string     // grpc or http
	from string     // service.name of the sender
	all  map[string]*otlpv1.Metric
}

// Export takes metrics over gRPC.
func (c *metricsCollector) Export(_ context.Context, r *metricsv1.ExportMetricsServiceRequest) (
	*metricsv1.ExportMetricsServiceResponse, error) {
	c.take(r, "grpc")
	return new(metricsv1.ExportMetricsServiceResponse), nil
}

func (c *metricsCollector) take(r *metricsv1.ExportMetricsServiceRequest, over string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.all = over, map[string]*otlpv1.Metric{}
	for _, from := range r.GetResourceMetrics() {
		for _, a := range from.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				c.from = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range from.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				c.all[m.GetName()] = m
			}
		}
	}
}

// refused returns how many requests were refused by the metrics that came last, and the trace that they lead to.
func (c *metricsCollector) refused() (n float64, trace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, point := range c.all["spillway_decisions_total"].GetSum().GetDataPoints() {
		for _, label := range point.GetAttributes() {
			if label.GetKey() == "outcome" && label.GetValue().GetStringValue() == "refused" {
				n += point.GetAsDouble()
				for _, e := range point.GetExemplars() {
					trace = fmt.Sprintf("%x", e.GetTraceId())
				}
			}
		}
	}
	return n, trace
}

// TestMetricsGoOverOTLP: the metrics that Prometheus reads are sent over OTLP, too, and a refusal leads to its trace.
func TestMetricsGoOverOTLP(t *testing.T) {
	for _, over := range []string{"grpc", "http/protobuf"} {
		t.Run(over, func(t *testing.T) {
			c := startCollector(t)
			protocol, _, _ := strings.Cut(over, "/")
			w := startTraced(t, exampleFile(t), c, "", "OTEL_METRICS_EXPORTER=otlp", "OTEL_METRIC_EXPORT_INTERVAL=100",
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+map[string]string{"grpc": c.grpc, "http": c.http}[protocol],
				"OTEL_EXPORTER_OTLP_PROTOCOL="+over)
			const traced = "00-" + clientTrace + "-" + clientSpan + "-01"
			w.wants(t, 10, http.StatusOK, "/", "x-user", "somebody")
			w.wants(t, 1, http.StatusTooManyRequests, "/", "x-user", "somebody", "traceparent", traced)
			servers.Await(t, "the refusal in the metrics", func() error {
				n, trace := c.metrics.refused()
				if n != 1 || trace != clientTrace {
					return fmt.Errorf("%v refused, which lead to the trace %q", n, trace)
				}
				return nil
			})
			c.metrics.mu.Lock()
			if c.metrics.over != protocol || c.metrics.from != "RateLimit" {
				t.Errorf("metrics of %q came over %s, want RateLimit over %s", c.metrics.from, c.metrics.over, protocol)
			}
			c.metrics.mu.Unlock()
			w.expectExemplars(t)
		})
	}
}

// expectExemplars fails unless Prometheus is led from a refused and from a slow request to its trace.
func (w *world) expectExemplars(t *testing.T) {
	t.Helper()
	request := must.Get(http.NewRequest(http.MethodGet, "http://"+w.sidecar.Debug+"/metrics", nil))(t)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response := must.Get(w.client.Do(request))(t)
	defer response.Body.Close()
	page := string(must.Get(io.ReadAll(response.Body))(t))
	for _, series := range []string{
		`spillway_decisions_total{[^}]*outcome="refused"[^}]*}`,
		`ratelimit_service_response_time_seconds_bucket{[^}]*}`,
	} {
		if !regexp.MustCompile(`(?m)^` + series + ` \S+ # {[^}]*trace_id="` + clientTrace + `"`).MatchString(page) {
			t.Errorf("no exemplar of %s leads to the trace", series)
		}
	}
}
