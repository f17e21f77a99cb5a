package sidecar

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestServesOnAllItsSocketsAtOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := begin(t, twoPerYear, "GRPC_UDS="+socket, "USE_PROMETHEUS=true")
	a := s.Addresses()
	expectCodes(t, dial(t, a.GRPC), "alice", codeOK, codeOK, codeOver)
	conn := dial(t, "unix:"+socket, unixDial(socket)...)
	expectCodes(t, conn, "alice", codeOver)
	expectPage(t, a.HTTP, "/healthcheck", 200, "OK")
	expectPage(t, a.HTTP, "/readyz", 200, "ok\n")
	expectPage(t, a.Debug, "/rlconfig", 200, "shop.user: unit=YEAR requests_per_unit=2")
	expectPage(t, a.Debug, "/stats", 200, `ratelimit_service_rate_limit_over_limit{domain="shop",key1="user"} 2`)
	expectPage(t, a.Debug, "/metrics", 200, `ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 4`)
	expectPage(t, a.Metrics, "/metrics", 200, "ratelimit_service_config_load_success 1")
	expectPage(t, a.Metrics, "/debug/pprof/", 404, "")
	for _, want := range []string{"counting in memory, alone", a.GRPC, a.HTTP, a.Debug, a.Metrics, socket,
		"try: curl -i http://" + a.HTTP + "/json"} {
		s.awaitLog(t, want)
	}
}

func TestAnAbstractSocket(t *testing.T) {
	name := "@spillway-test-" + strconv.Itoa(os.Getpid())
	begin(t, twoPerYear, "GRPC_UDS="+name)
	expectCodes(t, dial(t, name, unixDial(name)...), "alice", codeOK)
}

func TestJSONOnTheHTTPPort(t *testing.T) {
	s := begin(t, twoPerYear)
	for i, want := range []int{200, 200, 429} {
		got := post(t, s.Addresses().HTTP, `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}`+
			`]}]}`)
		if got != want {
			t.Errorf("POST /json number %d = %d, want %d", i+1, got, want)
		}
	}
}

func TestHealthAnswersForEveryName(t *testing.T) {
	s := begin(t, twoPerYear)
	client := healthv1.NewHealthClient(dial(t, s.Addresses().GRPC))
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		got, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
		if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v, want SERVING", name, got.GetStatus(), err)
		}
	}
	_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: "nobody"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("health of a service that is not here = %v, want NotFound", err)
	}
}

func TestReflectionIsBehindAFlag(t *testing.T) {
	for environ, want := range map[string]codes.Code{"GRPC_REFLECTION=true": codes.OK,
		"GRPC_REFLECTION=false": codes.Unimplemented} {
		s := begin(t, twoPerYear, environ)
		got := reflectServices(t, dial(t, s.Addresses().GRPC))
		if got != want {
			t.Errorf("with %s reflection answers %v, want %v", environ, got, want)
		}
	}
}

// reflectServices asks for the list of services.
func reflectServices(t *testing.T, conn *grpc.ClientConn) codes.Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := must.Get(reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx))(t)
	stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	_, err := stream.Recv()
	return status.Code(err)
}

func TestStartsWithoutRules(t *testing.T) {
	s := begin(t, "domain: [broken")
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOK)
	expectPage(t, s.Addresses().HTTP, "/healthcheck", 200, "OK")
	expectPage(t, s.Addresses().HTTP, "/readyz", 200,
		"ok (degraded: rules: no good load yet, so every request is admitted)")
	must.Do(t, s.logs("level=ERROR msg=\"every request is admitted until there are good rules; RULES_REQUIRED=true"))
	expectPage(t, s.Addresses().Debug, "/metrics", 200, "ratelimit_service_config_load_error 1")
	write(t, s.rules, twoPerYear)
	servers.Await(t, "the rules that were mended", func() error { return s.logs("rules loaded") })
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "ok\n")
}

// TestRulesThatAreNotSet: the log names the variable that is not set, and what is read in place of it.
func TestRulesThatAreNotSet(t *testing.T) {
	s := launch(t, nil, "", "RUNTIME_ROOT="+t.TempDir())
	must.Do(t, s.logs("mend=\"RULES is not set, so the folder of RUNTIME_ROOT"))
	begun := begin(t, "domain: [broken")
	if begun.logs("RULES is not set") == nil {
		t.Error("RULES is set, and the log has that it is not")
	}
}

func TestStartsWithoutRedis(t *testing.T) {
	gone := servers.FreeAddr(t)
	s := begin(t, twoPerYear, "REDIS_URL=redis://user:hunter2@"+gone, "KEY_SECRET=hunter3", "LOG_LEVEL=debug")
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "ok (degraded: redis: ") // without a request having met it
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "ok (degraded: redis: ")
	expectPage(t, s.Addresses().HTTP, "/healthcheck", 200, "OK")
	expectPage(t, s.Addresses().Debug, "/metrics", 200,
		`ratelimit_service_should_rate_limit_error{err_type="redis_error"} 3`)
	expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_degraded_decisions_total{domain="shop",reason=`)
	for _, page := range []string{"/metrics", "/stats", "/rlconfig", "/debug/pprof/cmdline"} {
		_, body := fetch(t, s.Addresses().Debug, page)
		if strings.Contains(body+s.log.String(), "hunter") {
			t.Errorf("%s or the log shows a secret", page)
		}
	}
}

func TestCountsInRedis(t *testing.T) {
	redis := servers.StartRedis(t)
	one := begin(t, twoPerYear, "REDIS_URL="+redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	two := begin(t, twoPerYear, "REDIS_URL="+redis.Socket, "REDIS_SOCKET_TYPE=tcp", "STORE_SILENCE=1s",
		"STORE_PATIENCE=2s")
	expectCodes(t, dial(t, one.Addresses().GRPC), "alice", codeOK)
	expectCodes(t, dial(t, two.Addresses().GRPC), "alice", codeOK, codeOver)
	expectCodes(t, dial(t, one.Addresses().GRPC), "alice", codeOver)
	asked := trips(t, one)
	expectCodes(t, dial(t, one.Addresses().GRPC), "alice", codeOver)
	if got := trips(t, one); asked < 2 || got != asked {
		t.Errorf("%d trips to Redis, then %d: want at least 2, and no more for a refusal that is remembered", asked,
			got)
	}
	expectPage(t, one.Addresses().Debug, "/metrics", 200,
		`ratelimit_service_rate_limit_over_limit_with_local_cache{domain="shop",key1="user"} 1`)
}

func TestReadinessFollowsRedis(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, twoPerYear, "REDIS_URL="+redis.Addr)
	servers.Await(t, "readiness", func() error { return readyz(t, s, "ok\n") })
	redis.Kill(t)
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK)
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "ok (degraded: redis: ")
	redis.Start(t)
	servers.Await(t, "the end of what was degraded", func() error {
		_, body := fetch(t, s.Addresses().HTTP, "/readyz")
		if body != "ok\n" {
			return errors.New(body)
		}
		return nil
	})
}

func TestReloadKeepsTheLastGoodRules(t *testing.T) {
	s := begin(t, twoPerYear)
	conn := dial(t, s.Addresses().GRPC)
	write(t, s.rules, "domain: shop\ndescriptors:\n  - {kye: user}\n")
	s.Reload()
	servers.Await(t, "the refusal of broken rules", func() error { return s.logs("rules refused") })
	if err := s.logs("rules.yaml:3:6: "); err != nil {
		t.Error(err)
	}
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "degraded: rules: the newest load was refused")
	expectCodes(t, conn, "alice", codeOK, codeOK, codeOver)
	write(t, s.rules, strings.Replace(twoPerYear, "2}", "3}", 1))
	s.Reload()
	servers.Await(t, "the new rules", func() error {
		_, body := fetch(t, s.Addresses().Debug, "/rlconfig")
		if !strings.Contains(body, "requests_per_unit=3") {
			return os.ErrNotExist
		}
		return nil
	})
	expectCodes(t, conn, "alice", codeOK, codeOver)
}

func TestShadowModeRefusesNothing(t *testing.T) {
	s := begin(t, twoPerYear, "SHADOW_MODE=true")
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOK)
	expectPage(t, s.Addresses().Debug, "/metrics", 200, "ratelimit_service_global_shadow_mode 1")
}

func TestStatsCanBeOff(t *testing.T) {
	s := begin(t, twoPerYear, "DISABLE_STATS=true", "USE_PROMETHEUS=true")
	expectPage(t, s.Addresses().Debug, "/metrics", 404, "")
	if s.Addresses().Metrics != "" {
		t.Errorf("metrics are served on %s", s.Addresses().Metrics)
	}
}

func TestAPanicIsCountedAndAnswered(t *testing.T) {
	counter := &scripted{}
	counter.do(func() { panic("the store fell over") })
	s := beginWith(t, counter, twoPerYear)
	conn := dial(t, s.Addresses().GRPC)
	expectCodes(t, conn, "alice", codeOK, codeOK, codeOver) // by the failure policy local
	expectPage(t, s.Addresses().Debug, "/metrics", 200, "spillway_panics_total 3")
	if err := s.logs("the store fell over"); err != nil {
		t.Error(err)
	}
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	cfg := fromEnv(t, "PORT=0", "DEBUG_PORT=0", "GRPC_PORT="+port)
	cfg.Output = new(logBuffer)
	_, err := New(cfg)
	if err == nil || !strings.Contains(err.Error(), "listen for gRPC") {
		t.Errorf("New on a port that is taken = %v", err)
	}
}

func TestWarningsAreLogged(t *testing.T) {
	s := begin(t, twoPerYear, "REDIS_PIPELINE_LIMIT=5", "MEMCACHE_SRV=x")
	for _, want := range []string{"ignored: REDIS_PIPELINE_LIMIT: ", "ignored: MEMCACHE_SRV: "} {
		s.awaitLog(t, want)
	}
}

// The keys of one process are not another's: the prefix and the secret reach Redis.
func TestKeysTakePrefixAndSecret(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, twoPerYear, "REDIS_URL="+redis.Addr, "CACHE_KEY_PREFIX=pre:", "KEY_SECRET=pepper", "STORE_SILENCE=1s",
		"STORE_PATIENCE=2s")
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK)
	_, port, _ := net.SplitHostPort(redis.Addr)
	out, err := exec.Command("redis-cli", "-p", port, "keys", "*").Output()
	if err != nil {
		t.Fatalf("list the keys: %v", err)
	}
	if !strings.HasPrefix(string(out), "pre:") || strings.Contains(string(out), "alice") {
		t.Errorf("Redis holds the key %q, want one that begins with pre: and hides alice", out)
	}
}
