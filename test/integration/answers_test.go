package integration

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

func TestAnswersThroughEnvoy(t *testing.T) {
	w := start(t, setup{})
	w.noErrors(t, "allowed with headers", w.allowedWithHeaders)
	w.noErrors(t, "refused with retry-after and body", w.refused)
	w.noErrors(t, "shadow", w.shadow)
	w.noErrors(t, "unknown domain", w.unknownDomain)
	w.noErrors(t, "empty descriptor", w.emptyDescriptor)
	w.noErrors(t, "window of five minutes", w.multipliedWindow)
	w.noErrors(t, "gRPC caller", w.grpcCaller)
	w.noErrors(t, "bytes that are not UTF-8", w.notUTF8)
	w.noErrors(t, "long value", w.longValue)
}

func (w *world) allowedWithHeaders(t *testing.T) {
	inside(t, time.Minute)
	got := w.wants(t, 1, http.StatusOK, "/", "x-user", "allowed")
	got.remaining(t, "9")
	if limit := got.header.Get("x-ratelimit-limit"); limit != `10, 10;w=60;name="per-user"` {
		t.Errorf("x-ratelimit-limit is %q", limit)
	}
	between(t, got, "x-ratelimit-reset", 1, 60)
	if after := got.header.Get("retry-after"); after != "" {
		t.Errorf("retry-after: %s on an allowed request", after)
	}
	w.wants(t, 1, http.StatusOK, "/", "x-user", "allowed").remaining(t, "8")
	w.wants(t, 1, http.StatusOK, "/", "x-user", "another").remaining(t, "9")
}

func (w *world) refused(t *testing.T) {
	inside(t, time.Minute)
	w.wants(t, 10, http.StatusOK, "/", "x-user", "refused").remaining(t, "0")
	reached := w.app.Hits()
	got := w.wants(t, 1, http.StatusTooManyRequests, "/", "x-user", "refused")
	if w.app.Hits() != reached {
		t.Error("a refused request reached the application")
	}
	got.remaining(t, "0")
	between(t, got, "retry-after", 1, 60)
	if kind := got.header.Get("content-type"); kind != "application/problem+json" {
		t.Errorf("content-type is %q", kind)
	}
	if marked := got.header.Get("x-envoy-ratelimited"); marked != "true" {
		t.Errorf("x-envoy-ratelimited is %q", marked)
	}
	var problem struct {
		Status   int      `json:"status"`
		Title    string   `json:"title"`
		Violated []string `json:"violated-policies"`
	}
	err := json.Unmarshal([]byte(got.body), &problem)
	if err != nil || problem.Status != http.StatusTooManyRequests || problem.Title == "" {
		t.Errorf("the body is no problem document: %v in %q", err, got.body)
	}
	if len(problem.Violated) != 1 || problem.Violated[0] != "per-user" {
		t.Errorf("the body names %v as violated, want per-user", problem.Violated)
	}
}

func (w *world) shadow(t *testing.T) {
	w.wants(t, 5, http.StatusOK, "/beta").unlimited(t)
	// One of five was within the limit of one a day: four went over, and are counted as such.
	const series = `ratelimit_service_rate_limit_shadow_mode{domain="edge",key1="beta_any"`
	w.metric(t, series, 4)
}

func (w *world) unknownDomain(t *testing.T) {
	w.wants(t, 30, http.StatusOK, "/partners", "x-user", "anyone").unlimited(t)
}

func (w *world) emptyDescriptor(t *testing.T) {
	w.wants(t, 1, http.StatusOK, "/reports").unlimited(t)
	w.wants(t, 1, http.StatusOK, "/reports", "x-tenant", "ops").unlimited(t)
	w.wants(t, 1, http.StatusOK, "/reports", "x-tenant", "acme").remaining(t, "599")
	w.wants(t, 1, http.StatusOK, "/reports", "x-tenant", "other").remaining(t, "59")
}

func (w *world) multipliedWindow(t *testing.T) {
	inside(t, 5*time.Minute)
	got := w.wants(t, 2, http.StatusOK, "/export", "x-user", "exporter")
	if limit := got.header.Get("x-ratelimit-limit"); limit != `2, 2;w=300;name="export"` {
		t.Errorf("x-ratelimit-limit is %q, want a window of 300 s", limit)
	}
	between(t, w.wants(t, 1, http.StatusTooManyRequests, "/export", "x-user", "exporter"), "retry-after", 1, 300)
}

func (w *world) grpcCaller(t *testing.T) {
	inside(t, time.Minute)
	for range 10 {
		if got := w.grpc(t, "caller"); got.header.Get("grpc-status") != "0" {
			t.Fatalf("an allowed gRPC call was answered with grpc-status %q, want 0 (headers %v)",
				got.header.Get("grpc-status"), got.header)
		}
	}
	got := w.grpc(t, "caller")
	if status := got.header.Get("grpc-status"); status != "8" {
		t.Errorf("a refused gRPC call was answered with grpc-status %q, want 8, RESOURCE_EXHAUSTED (headers %v)",
			status, got.header)
	}
	between(t, got, "retry-after", 1, 60)
}

// grpc calls the application the way gRPC clients do. No message is needed: it is about what Envoy answers.
func (w *world) grpc(t *testing.T, user string) answer {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	r := must.Get(http.NewRequest(http.MethodPost, "http://"+w.envoy.Addr+"/package.Service/Method", http.NoBody))(t)
	r.Header.Set("content-type", "application/grpc")
	r.Header.Set("te", "trailers")
	r.Header.Set("x-user", user)
	got, err := do(&http.Client{Transport: transport, Timeout: time.Minute}, r)
	if err != nil {
		t.Fatalf("gRPC call through Envoy: %v", err)
	}
	return got
}

// A byte that is not UTF-8 in a header that a descriptor reads would be a way past every limit, if it made the call
// fail.
func (w *world) notUTF8(t *testing.T) {
	inside(t, time.Minute)
	w.wants(t, 10, http.StatusOK, "/", "x-user", "\xff\xfebytes").remaining(t, "0")
	w.wants(t, 1, http.StatusTooManyRequests, "/", "x-user", "\xff\xfebytes")
	w.wants(t, 1, http.StatusOK, "/", "x-user", "\xff\xfdbytes").remaining(t, "9")
}

// A value of 50 KiB is a value: these two users differ in its last byte.
func (w *world) longValue(t *testing.T) {
	inside(t, time.Minute)
	long := strings.Repeat("v", 50<<10)
	w.wants(t, 10, http.StatusOK, "/", "x-user", long+"1").remaining(t, "0")
	w.wants(t, 1, http.StatusTooManyRequests, "/", "x-user", long+"1")
	w.wants(t, 1, http.StatusOK, "/", "x-user", long+"2").remaining(t, "9")
}

// between fails unless a header is a whole number within bounds.
func between(t *testing.T, a answer, header string, low, high int) {
	t.Helper()
	n, err := strconv.Atoi(a.header.Get(header))
	if err != nil || n < low || n > high {
		t.Errorf("%s is %q, want %d to %d (headers %v)", header, a.header.Get(header), low, high, a.header)
	}
}

// metric fails unless the first of the sidecar's counters whose line starts that way has the value.
func (w *world) metric(t *testing.T, series string, want float64) {
	t.Helper()
	r := must.Get(http.NewRequest(http.MethodGet, "http://"+w.sidecar.Debug+"/metrics", nil))(t)
	got, err := do(http.DefaultClient, r)
	if err != nil {
		t.Fatalf("read the sidecar's metrics: %v", err)
	}
	for line := range strings.Lines(got.body) {
		if !strings.HasPrefix(line, series) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil || value != want {
			t.Errorf("%s is %q, want %v", series, line, want)
		}
		return
	}
	t.Errorf("the sidecar has no counter %s; it has:\n%s", series, got.body)
}
