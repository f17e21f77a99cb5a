package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// canary is the n-th secret. Each is told apart, so that a failure names the one that got out.
func canary(n int) string { return fmt.Sprintf("canary%02dtweets", n) }

// firstOfClients is the first of those that clients send; the others are in the environment.
const firstOfClients = 11

// canaries are all of them.
func canaries() []string {
	var all []string
	for n := 1; n <= 21; n++ {
		all = append(all, canary(n))
	}
	return all
}

// expectNone fails for each secret in a text.
func expectNone(t *testing.T, where, text string, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		if at := strings.Index(text, secret); at >= 0 {
			t.Errorf("%s tells %s: …%s…", where, secret, text[max(0, at-150):min(len(text), at+50)])
		}
	}
}

func TestSecretsStayInside(t *testing.T) {
	locked := servers.StartRedis(t, "--requirepass", "somethingelse")
	file := filepath.Join(t.TempDir(), "secret")
	writeFile(t, file, canary(6)+"\n")
	rules := filepath.Join(servers.Root(t), "examples", "rules")
	s := servers.StartSidecar(t,
		"RULES="+rules, "LOG_LEVEL=trace", "LOG_DECISIONS=all", "DEFAULT_DOMAIN=api",
		"REDIS_URL=redis://user:"+canary(1)+"@"+locked.Addr, "REDIS_AUTH="+canary(2), "REDIS_SENTINEL_AUTH="+canary(3),
		"REDIS_PERSECOND=true", "REDIS_PERSECOND_URL=redis://:"+canary(4)+"@"+locked.Addr, "REDIS_PERSECOND_AUTH=user:"+
			canary(5),
		"KEY_SECRET_FILE="+file,
		// Neither is a list of headers: the library complains about both.
		"OTEL_EXPORTER_OTLP_HEADERS="+canary(7)+",authorization=Bearer%20"+canary(8)+"%zz",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS=bad key="+canary(9),
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://user:"+canary(10)+"@127.0.0.1:1", "TRACING_ENABLED=true",
		"OTEL_BSP_SCHEDULE_DELAY=10",
	)
	for range 3 {
		sendSecrets(t, s)
	}
	servers.Await(t, "complaints in the log", func() error {
		for _, want := range []string{"redis could not decide", "spans could not be sent", "msg=decision"} {
			if !strings.Contains(s.Output(), want) {
				return fmt.Errorf("the log lacks %q", want)
			}
		}
		return nil
	})
	for _, page := range []string{"/rlconfig", "/stats", "/metrics", "/loglevel", "/", "/debug/pprof/cmdline",
		"/debug/pprof/goroutine?debug=2"} {
		expectNone(t, page, pageOf(t, s.Debug, page), canaries())
	}
	expectNone(t, "/readyz", pageOf(t, s.HTTP, "/readyz"), canaries())
	expectNone(t, "the log", s.Output(), canaries())
}

// pageOf is what an address answers.
func pageOf(t *testing.T, addr, path string) string {
	t.Helper()
	r := must.Get(http.Get("http://" + addr + path))(t)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("GET %s answers %s: %v", path, r.Status, err)
	}
	return string(body)
}

// sendSecrets sends what clients keep to themselves, through both doors and /json.
func sendSecrets(t *testing.T, s *servers.Sidecar) {
	t.Helper()
	n := firstOfClients - 1
	next := func() string { n++; return canary(n) }
	conn, err := grpc.NewClient("passthrough:///"+s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+next(), "tracestate", "vendor="+next(),
		"traceparent", "00-"+clientTrace+"-"+clientSpan+"-01")
	_, err = authv3.NewAuthorizationClient(conn).Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Principal: "spiffe://" + next(),
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: "10.0.0.9"},
			}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: "GET", Host: next(), Path: "/" + next() + "?token=" + next(), Body: next(),
			Headers: map[string]string{"authorization": "Bearer " + next(), "cookie": "session=" + next(),
				"x-api-key": next()},
		}},
	}})
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	body := fmt.Sprintf(`{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":%q}]}]}`, next())
	r := must.Get(http.Post("http://"+s.HTTP+"/json", "application/json", strings.NewReader(body)))(t)
	r.Body.Close()
	if n != len(canaries()) {
		t.Fatalf("%d secrets were sent, of %d", n, len(canaries()))
	}
}

func TestErrorsAtStartTellNoSecrets(t *testing.T) {
	secret := canary(1)
	for _, environ := range [][]string{
		{"REDIS_URL=redis://user:" + secret + "@host:notaport"},
		{"REDIS_URL=redis://user:" + secret + "@host:6379/notadb"},
		{"REDIS_URL=redis://user:" + secret + "%zz@host:6379"},
		{"REDIS_URL=" + secret + "@@@://"},
		{"REDIS_URL=ftp://:" + secret + "@host"},
		{"REDIS_URL=redis://:" + secret + "@a:1,redis://:" + secret + "@b:1"},
		{"REDIS_TYPE=sentinel", "REDIS_URL=main,redis://:" + secret + "@a:x"},
		{"REDIS_TYPE=cluster", "REDIS_URL=redis://:" + secret + "@a:1,redis://:another@b:1"},
		{"REDIS_AUTH=" + secret, "REDIS_AUTH_FILE=/none"},
		{"REDIS_SENTINEL_AUTH=" + secret, "REDIS_SENTINEL_AUTH_FILE=/none"},
		{"KEY_SECRET=" + secret, "KEY_SECRET_FILE=/none"},
		{"KEY_SECRET=" + secret, "PORT=x"},
		{"OTEL_EXPORTER_OTLP_HEADERS=" + secret, "TRACING_EXPORTER_PROTOCOL=x"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://:" + secret + "@host:notaport", "GRPC_SERVER_USE_TLS=true",
			"GRPC_SERVER_TLS_CERT=/none", "GRPC_SERVER_TLS_KEY=/none"},
	} {
		cmd := exec.Command(servers.SidecarBin(t))
		cmd.Env = append([]string{"PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0"}, environ...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("with %q it starts", environ)
		}
		expectNone(t, "the error", string(out), []string{secret})
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(text), 0o600))
}
