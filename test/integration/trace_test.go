package integration

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// zipkinTracer makes Envoy speak B3. Its own spans are not collected.
const zipkinTracer = `tracing:
  random_sampling: {value: 100}
  provider:
    name: envoy.tracers.zipkin
    typed_config:
      "@type": type.googleapis.com/envoy.config.trace.v3.ZipkinConfig
      collector_cluster: collector
      collector_endpoint: /api/v2/spans
      collector_endpoint_version: HTTP_JSON
`

// documented are the tracer and the cluster of the collector, as docs/explain/observability.md shows them.
func documented(t *testing.T) (tracer, cluster string) {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join(servers.Root(t), "docs", "explain", "observability.md")))(t)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/explain/observability.md has %d blocks of YAML, want a tracer and a cluster", len(blocks))
	}
	return blocks[0][1], blocks[1][1]
}

// indented puts a block so many blanks to the right.
func indented(block string, by int) string {
	var b strings.Builder
	for line := range strings.Lines(block) {
		b.WriteString(strings.Repeat(" ", by) + line)
	}
	return b.String()
}

// withTracer are the changes that add a tracer and the collector's cluster to an example, and make Envoy send each span
// at once.
func withTracer(t *testing.T, tracer, collector string) [][2]string {
	t.Helper()
	fromPage, cluster := documented(t)
	if tracer == "" {
		tracer = fromPage
	}
	const example = "{socket_address: {address: 127.0.0.1, port_value: 4317}}"
	if strings.Count(cluster, example) != 1 {
		t.Fatalf("docs/explain/observability.md shows no cluster at %s", example)
	}
	cluster = strings.Replace(cluster, example, socketAddress(collector), 1)
	const quick = "\nlayered_runtime: {layers: [{name: test, static_layer: {tracing.opentelemetry.min_flush_spans: " +
		"1}}]}\n"
	return [][2]string{
		{"          stat_prefix: ingress\n", "          stat_prefix: ingress\n" + indented(tracer, 10)},
		{"\nadmin:\n", quick + "\nadmin:\n"},
		{"\n  clusters:\n", "\n  clusters:\n" + indented(cluster, 2) + "\n"},
	}
}

// startTraced starts a world of one example whose Envoy and sidecar send their spans to the collector. Envoy has the
// tracer of the page unless it is given another one.
func startTraced(t *testing.T, example string, c *collector, tracer string, env ...string) *world {
	t.Helper()
	w := &world{redis: servers.StartRedis(t), app: servers.StartUpstream(t), rules: t.TempDir(),
		log: filepath.Join(t.TempDir(), "access.log")}
	w.writeRules(t, nil)
	env = append(env, "RULES="+w.rules, "REDIS_URL="+w.redis.Addr, storeSilence, storePatience,
		"OTEL_BSP_SCHEDULE_DELAY=50")
	w.sidecar = servers.StartSidecar(t, env...)
	changes := append(addresses(w.app.Addr, socketAddress(w.sidecar.GRPC), w.log),
		[2]string{" timeout: 0.025s", " timeout: " + filterTimeout})
	if example == authzFile(t) {
		changes = append(changes, [2]string{" timeout: 0.75s", " timeout: " + authzTimeout})
	}
	w.envoy = servers.StartEnvoy(t, rewritten(t, example, append(changes, withTracer(t, tracer, c.grpc)...)))
	w.client = &http.Client{Transport: new(http.Transport), Timeout: time.Minute}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// Ids of the client's own span.
const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
	quietTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
)

func TestOneTraceFromEnvoyToRedis(t *testing.T) {
	for _, door := range []struct {
		name, example, over string
		path                string
		headers             []string
		call                string            // how Envoy's span of the call to the sidecar is called
		words               map[string]string // of the decision
	}{
		{
			"rls", exampleFile(t), "grpc", "/", []string{"x-user", "somebody"},
			"async envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit egress",
			map[string]string{"spillway.door": "rls", "spillway.domain": "edge", "spillway.rule": "per-user",
				"spillway.scope": "descriptor", "spillway.outcome": "allowed"},
		},
		{
			"ext_authz", authzFile(t), "http/protobuf", "/", []string{"x-api-key", demoKey},
			"async envoy.service.auth.v3.Authorization.Check egress",
			map[string]string{"spillway.door": "ext_authz", "spillway.domain": "api", "spillway.outcome": "allowed"},
		},
	} {
		t.Run(door.name, func(t *testing.T) {
			c := startCollector(t)
			endpoint, _, _ := strings.Cut(door.over, "/")
			address := map[string]string{"grpc": c.grpc, "http": c.http}[endpoint]
			w := startTraced(t, door.example, c, "", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address,
				"OTEL_EXPORTER_OTLP_PROTOCOL="+door.over)
			w.wants(t, 1, http.StatusOK, door.path, append(door.headers, "traceparent", "00-"+clientTrace+"-"+
				clientSpan+"-01")...)
			links := c.chain(t, clientTrace, "redis.spend", 4)
			expectLinks(t, c, links, door.call, door.name)
			for key, want := range door.words {
				if got := links[1].words()[key]; got != want {
					t.Errorf("the decision's %s is %q, want %q", key, got, want)
				}
			}
			if links[0].over != endpoint {
				t.Errorf("the sidecar's spans came over %s, want %s", links[0].over, endpoint)
			}
			w.expectNoSecrets(t, c, "somebody", demoKey)
			w.expectQuiet(t, c, door.path, door.headers)
		})
	}
}

// expectLinks checks the way from Redis up to the client: redis, decision, Envoy's call, Envoy's request.
func expectLinks(t *testing.T, c *collector, links []span, call, door string) {
	t.Helper()
	if len(links) != 4 {
		t.Fatalf("the chain has %d spans, want Redis, the decision and two of Envoy:%s", len(links),
			spansOf(c.of(clientTrace)))
	}
	for i, want := range []struct {
		service, name string
		kind          tracev1.Span_SpanKind
	}{
		{"RateLimit", "redis.spend", tracev1.Span_SPAN_KIND_CLIENT},
		{"RateLimit", "ratelimit.decide", tracev1.Span_SPAN_KIND_SERVER},
		{"edge", call, tracev1.Span_SPAN_KIND_CLIENT},
		{"edge", "ingress", tracev1.Span_SPAN_KIND_SERVER},
	} {
		got := links[i]
		if got.service != want.service || got.GetName() != want.name || got.GetKind() != want.kind {
			t.Errorf("span %d above Redis is %q of %s (%v), want %q of %s (%v)", i, got.GetName(), got.service,
				got.GetKind(), want.name, want.service, want.kind)
		}
	}
	if got := hex.EncodeToString(links[3].GetParentSpanId()); got != clientSpan {
		t.Errorf("the parent of Envoy's span is %s, want the client's %s", got, clientSpan)
	}
	trip := links[0].words()
	if trip["db.system"] != "redis" || trip["spillway.outcome"] != "decided" || trip["spillway.shard"] == "" ||
		trip["spillway.charges"] == "" {
		t.Errorf("over %s, the trip tells %v", door, trip)
	}
}

// expectNoSecrets fails when a span of the sidecar holds what the client sent.
func (w *world) expectNoSecrets(t *testing.T, c *collector, secrets ...string) {
	t.Helper()
	for _, s := range c.of(clientTrace) {
		if s.service != "RateLimit" {
			continue
		}
		for _, secret := range secrets {
			if strings.Contains(s.String(), secret) {
				t.Errorf("the span %q holds what the client sent: %v", s.GetName(), s.words())
			}
		}
	}
}

// expectQuiet sends a request that its caller does not sample, then one that it does, and fails if the first left a
// span.
func (w *world) expectQuiet(t *testing.T, c *collector, path string, headers []string) {
	t.Helper()
	const last = "5bf92f3577b34da6a3ce929d0e0e4737"
	w.wants(t, 1, http.StatusOK, path, append(headers, "traceparent", "00-"+quietTrace+"-"+clientSpan+"-00")...)
	w.wants(t, 1, http.StatusOK, path, append(headers, "traceparent", "00-"+last+"-"+clientSpan+"-01")...)
	c.chain(t, last, "redis.spend", 4)
	if all := c.of(quietTrace); len(all) > 0 {
		t.Errorf("a trace that its caller does not sample has spans:%s", spansOf(all))
	}
}

func TestSpansOfASidecarBehindZipkinsHeaders(t *testing.T) {
	c := startCollector(t)
	w := startTraced(t, exampleFile(t), c, zipkinTracer, "TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL=grpc",
		"TRACING_SERVICE_NAME=limits", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+c.grpc)
	w.wants(t, 1, http.StatusOK, "/", "x-user", "somebody", "x-b3-traceid", clientTrace, "x-b3-spanid", clientSpan,
		"x-b3-sampled", "1")
	var decision, trip span
	servers.Await(t, "both spans", func() error {
		all := c.of(clientTrace)
		var first, second bool
		decision, first = byName(all, "ratelimit.decide")
		trip, second = byName(all, "redis.spend")
		if !first || !second {
			return fmt.Errorf("the trace has %s", spansOf(all))
		}
		return nil
	})
	if string(trip.GetParentSpanId()) != string(decision.GetSpanId()) {
		t.Errorf("the trip is not below the decision:%s", spansOf(c.of(clientTrace)))
	}
	if parent := hex.EncodeToString(decision.GetParentSpanId()); parent == clientSpan || parent == "" {
		t.Errorf("the decision is below %q, want a span of Envoy's own", parent)
	}
	if decision.service != "limits" {
		t.Errorf("the service is called %q, want limits", decision.service)
	}
}
