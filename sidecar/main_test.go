package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) {
	// The client library looks once a second whether a server that was away is back, and notices only then that it was
	// closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// twoPerYear are rules that refuse a user's third request.
const twoPerYear = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
`

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// Write appends to the log.
func (j *logBuffer) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// String is all that was written so far.
func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// running is a sidecar that a test started.
type running struct {
	*Sidecar
	log   *logBuffer
	rules string // its file
	stop  context.CancelFunc
	done  chan struct{}
	err   error // with done
}

// fromEnv reads settings, or fails the test.
func fromEnv(t testing.TB, environ ...string) settings.Config {
	t.Helper()
	cfg, err := settings.FromEnvironment(environ, "sidecar")
	if err != nil {
		t.Fatalf("environment %q: %v", environ, err)
	}
	return cfg
}

// begin starts a sidecar on free ports with these rules, and stops it when the test ends.
func begin(t testing.TB, text string, environ ...string) *running {
	t.Helper()
	return beginWith(t, nil, text, environ...)
}

// beginWith is begin with a store of the test's own.
func beginWith(t testing.TB, counter engine.Counter, text string, environ ...string) *running {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, text)
	return launch(t, counter, file, append([]string{"RULES=" + file}, environ...)...)
}

// launch starts a sidecar on free ports with this environment, and stops it when the test ends. The file is kept for
// the test.
func launch(t testing.TB, counter engine.Counter, file string, environ ...string) *running {
	t.Helper()
	cfg := fromEnv(t, append([]string{"PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "PROMETHEUS_ADDR=127.0.0.1:0"},
		environ...)...)
	r := &running{log: new(logBuffer), rules: file, done: make(chan struct{})}
	cfg.Output = r.log
	s, err := assemble(cfg, World{}, counter)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	r.Sidecar = s
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.done)
		r.err = errors.Join(s.Run(ctx), s.Close())
	}()
	t.Cleanup(func() {
		r.halt(t)
		if t.Failed() {
			t.Logf("log of the sidecar:\n%s", r.log)
		}
	})
	ready := "msg=ready"
	if cfg.Log.Format == "json" {
		ready = `"@message":"ready"`
	}
	if cfg.Rules.Required {
		ready = "ready"
	}
	servers.Await(t, "the sidecar's readiness", func() error { return r.logs(ready) })
	return r
}

// halt stops the sidecar and waits until it is gone.
func (r *running) halt(t testing.TB) {
	t.Helper()
	r.stop()
	<-r.done
	if r.err != nil {
		t.Errorf("the sidecar ended with: %v", r.err)
	}
}

// logs is nil when the log holds the text.
func (r *running) logs(text string) error {
	if !strings.Contains(r.log.String(), text) {
		return fmt.Errorf("%q is not in the log:\n%s", text, r.log)
	}
	return nil
}

// awaitLog waits until the log holds the text.
func (r *running) awaitLog(t testing.TB, text string) {
	t.Helper()
	servers.Await(t, "a line of the log", func() error { return r.logs(text) })
}

func write(t testing.TB, file, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
}

// dial connects to an address until the test ends.
func dial(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if len(options) == 0 {
		options = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	conn := must.Get(grpc.NewClient("passthrough:///"+address, options...))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends one request for a user.
func ask(conn *grpc.ClientConn, user string) (ratelimitv3.RateLimitResponse_Code, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "shop",
		Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}},
	})
	return answer.GetOverallCode(), err
}

const (
	codeOK   = ratelimitv3.RateLimitResponse_OK
	codeOver = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// expectCodes asks once per code for a user.
func expectCodes(t *testing.T, conn *grpc.ClientConn, user string, codes ...ratelimitv3.RateLimitResponse_Code) {
	t.Helper()
	for i, want := range codes {
		got, err := ask(conn, user)
		if err != nil || got != want {
			t.Errorf("request %d of %s = %v, %v, want %v", i+1, user, got, err, want)
		}
	}
}

// browser is a client that keeps no connection.
func browser() http.Client {
	return http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
}

// fetch gets a page.
func fetch(t *testing.T, address, path string) (int, string) {
	t.Helper()
	client := browser()
	answer, err := client.Get("http://" + address + path)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return answer.StatusCode, string(body)
}

// expectPage gets a page that must hold a text.
func expectPage(t *testing.T, address, path string, code int, text string) {
	t.Helper()
	got, body := fetch(t, address, path)
	if got != code || !strings.Contains(body, text) {
		t.Errorf("GET %s = %d %q, want %d with %q", path, got, body, code, text)
	}
}

// scripted is a store that runs a function of the test before it admits.
type scripted struct {
	mu   sync.Mutex // guards then
	then func()
}

func (s *scripted) do(then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.then = then
}

// Try leaves everything to Ask.
func (s *scripted) Try(*limit.Request) bool { return false }

// Ask admits everything.
func (s *scripted) Ask(_ context.Context, requests ...*limit.Request) {
	s.mu.Lock()
	then := s.then
	s.mu.Unlock()
	if then != nil {
		then()
	}
	for _, r := range requests {
		for i := range r.Decisions {
			r.Decisions[i] = limit.Decision{Outcome: limit.Allowed, Remaining: 1, Charged: 1, ResetAfter: time.Second}
		}
	}
}

// Peek is not asked for.
func (s *scripted) Peek(context.Context, *limit.Request) {}

// Reset is not asked for.
func (s *scripted) Reset(context.Context, []string) error { return nil }
