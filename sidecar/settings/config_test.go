package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/test/must"
)

// fromEnv reads a Config, or fails the test.
func fromEnv(t testing.TB, environ ...string) Config {
	t.Helper()
	cfg, err := FromEnvironment(environ, "sidecar")
	if err != nil {
		t.Fatalf("environment %q: %v", environ, err)
	}
	return cfg
}

func TestDefaults(t *testing.T) {
	cfg := fromEnv(t)
	want := Config{
		Listen: Listen{
			Host: "127.0.0.1", Port: 8080, GRPCHost: "127.0.0.1", GRPCPort: 8081, DebugHost: "127.0.0.1",
			DebugPort: 6070,
			UDSMode:   0o666, MaxMessage: 1 << 20, MaxAge: 24 * time.Hour, MaxAgeGrace: time.Hour,
		},
		Log:     Log{Level: "info", Format: "text", Decisions: "off", DecisionsRate: 1},
		Tracing: Tracing{Over: "http", Service: "RateLimit", Rate: 1, Callers: "tracecontext,b3", Queue: 2048},
		Rules:   Rules{Root: "/srv/runtime_data/current", AppDirectory: "config", WatchRoot: true, Type: "FILE"},
		XDS: XDS{Server: "localhost:18000", NodeID: "default", RetryFirst: time.Second,
			RetryMost: 10 * time.Second, RetryGrows: 2, Jitter: true, MaxMessage: 16 << 20},
		Redis: Redis{Type: "SINGLE"}, PerSecond: Redis{Type: "SINGLE"},
		Store: Store{Backend: "redis", Patience: 100 * time.Millisecond, Silence: 250 * time.Millisecond,
			MaxKeys: 1_000_000, DenialCache: 100_000, Leases: true, Waiters: 10_000},
		Breaker: Breaker{Failures: 3, Open: 500 * time.Millisecond, Probes: 1},
		Answer: Answer{LimitHeader: "RateLimit-Limit", RemainingHeader: "RateLimit-Remaining",
			ResetHeader: "RateLimit-Reset", Style: "spillway"},
		Metrics: Metrics{
			Addr: ":9090", Path: "/metrics", NearRatio: 0.8, StatsdHost: "localhost", StatsdPort: 8125,
			Flush: 10 * time.Second,
		},
		OTLP:   OTLP{Every: 60_000},
		Admin:  Admin{Local: "operate", Events: "operate", TopKeys: 1024, Decisions: 8192},
		Record: Record{AllowedOneIn: 100, Length: 20_000},
	}
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestASetButEmptyVariableIsNotSet(t *testing.T) {
	var environ []string
	for _, name := range Variables() {
		environ = append(environ, name+"=")
	}
	if diff := cmp.Diff(fromEnv(t), fromEnv(t, environ...)); diff != "" {
		t.Errorf("empty variables change something (-unset +empty):\n%s", diff)
	}
}

func TestHosts(t *testing.T) {
	for program, want := range map[string]string{
		"sidecar": "127.0.0.1", "/bin/ratelimit": "0.0.0.0", "ratelimit": "0.0.0.0", "/ratelimit/sidecar": "127.0.0.1",
	} {
		cfg := must.Get(FromEnvironment([]string{"DEBUG_HOST=::1"}, program))(t)
		if cfg.Listen.Host != want || cfg.Listen.GRPCHost != want || cfg.Listen.DebugHost != "::1" {
			t.Errorf("started as %s it listens on %q, %q and %q, want %q, %[5]q and ::1",
				program, cfg.Listen.Host, cfg.Listen.GRPCHost, cfg.Listen.DebugHost, want)
		}
	}
}

func TestValuesAreRead(t *testing.T) {
	cfg := fromEnv(t,
		"PORT=0", "GRPC_UDS=@spillway", "GRPC_UDS_MODE=0660", "GRPC_MAX_CONNECTION_AGE=5m", "REDIS_URL=redis:6379",
		"REDIS_TIMEOUT=1s",
		"STORE_SILENCE=90ms", "LOG_LEVEL=WARNING", "LOG_FORMAT=JSON", "SHADOW_MODE=true", "NEAR_LIMIT_RATIO=0.5",
		"EXTRA_TAGS=zone:a,cell:b",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=c", "GRPC_SERVER_TLS_KEY=k",
		"GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt", "MERGE_DOMAIN_CONFIG=1", "RULES=x.yaml",
	)
	got := []any{
		cfg.Listen.Port, cfg.Listen.UDS, cfg.Listen.UDSMode, cfg.Listen.MaxAge, cfg.Redis.URL, cfg.Redis.Timeout,
		cfg.Store.Silence, cfg.Log.Level,
		cfg.Answer.Shadow, cfg.Metrics.NearRatio, cfg.Metrics.Labels, cfg.TLS.ClientCA, cfg.Rules.Merge, cfg.Rules.Path,
	}
	want := []any{
		uint16(0), "@spillway", SocketMode(0o660), 5 * time.Minute, "redis:6379", time.Second, 90 * time.Millisecond,
		"WARNING",
		true, 0.5, map[string]string{"zone": "a", "cell": "b"}, "/certs/ca.crt", true, "x.yaml",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEachProblemNamesVariableValueAndWhatIsAllowed(t *testing.T) {
	for environ, want := range map[string]string{
		"PORT=http":                       `PORT: "http" is not a port: 0 to 65535`,
		"GRPC_PORT=70000":                 `GRPC_PORT: "70000" is not a port: 0 to 65535`,
		"SHADOW_MODE=on":                  `SHADOW_MODE: "on" is not true or false`,
		"STORE_PATIENCE=10":               `STORE_PATIENCE: "10" is not a duration such as 10ms, 5s or 24h`,
		"STORE_PATIENCE=0s":               `STORE_PATIENCE: "0s" is not a duration from 1ms to 1m`,
		"STORE_SILENCE=49ms":              `STORE_SILENCE: "49ms" is not a duration from 50ms to 1m`,
		"GRPC_UDS_MODE=rw":                `GRPC_UDS_MODE: "rw" is not a mode in octal such as 0660 or 0666`,
		"NEAR_LIMIT_RATIO=2":              `NEAR_LIMIT_RATIO: "2" is not a number above 0 and at most 1`,
		"NEAR_LIMIT_RATIO=x":              `NEAR_LIMIT_RATIO: "x" is not a number such as 0.8`,
		"MEMORY_MAX_KEYS=-1":              `MEMORY_MAX_KEYS: "-1" is not a number from 1`,
		"MAX_MESSAGE_BYTES=1000":          `MAX_MESSAGE_BYTES: "1000" is not a number from 16384 to 4194304`,
		"MAX_MESSAGE_BYTES=4194305":       `MAX_MESSAGE_BYTES: "4194305" is not a number from 16384 to 4194304`,
		"MEMORY_MAX_KEYS=1e6":             `MEMORY_MAX_KEYS: "1e6" is not a whole number`,
		"BREAKER_FAILURES=0":              `BREAKER_FAILURES: "0" is not a number from 1 to 1000000`,
		"BREAKER_FAILURES=few":            `BREAKER_FAILURES: "few" is not a whole number`,
		"BREAKER_OPEN=2h":                 `BREAKER_OPEN: "2h0m0s" is not a duration from 10ms to 1h`,
		"BREAKER_PROBES=-1":               `BREAKER_PROBES: "-1" is not a number from 1 to 1000000`,
		"THROTTLE_WAITERS=0":              `THROTTLE_WAITERS: "0" is not a number from 1`,
		"LOG_LEVEL=loud":                  `LOG_LEVEL: "loud" is not one of error, warn, info, debug, trace`,
		"LOG_FORMAT=xml":                  `LOG_FORMAT: "xml" is not text or json`,
		"REDIS_TYPE=replicated":           `REDIS_TYPE: "replicated" is not one of single, sentinel, cluster, ring`,
		"REDIS_PERSECOND=maybe":           `REDIS_PERSECOND: "maybe" is not true or false`,
		"REDIS_PERSECOND_POOL_SIZE=many":  `REDIS_PERSECOND_POOL_SIZE: "many" is not a whole number`,
		"REDIS_REPLICA_READS=all":         `REDIS_REPLICA_READS: "all" is not none or usage`,
		"REDIS_POOL_SIZE=-1":              `REDIS_POOL_SIZE: "-1" is not a number from 0 to 10000`,
		"REDIS_TIMEOUT=-1s":               `REDIS_TIMEOUT: "-1s" is not a duration from 0s`,
		"REDIS_AUTH_FILE=/does/not/exist": `REDIS_AUTH_FILE: open /does/not/exist: no such file or directory`,
		"REDIS_SOCKET_TYPE=udp":           `REDIS_SOCKET_TYPE: "udp" is not tcp or unix`,
		"BACKEND_TYPE=disk":               `BACKEND_TYPE: "disk" is not redis`,
		"CONFIG_TYPE=ETCD":                `CONFIG_TYPE: "ETCD" is not FILE or GRPC_XDS_SOTW`,
		"LIMIT_LIMIT_HEADER=a b":          `LIMIT_LIMIT_HEADER: "a b" is not the name of a header`,
		"PROMETHEUS_ADDR=9090":            `PROMETHEUS_ADDR: "9090" is not an address such as :9090 or 127.0.0.1:9090`,
		"PROMETHEUS_PATH=metrics":         `PROMETHEUS_PATH: "metrics" is not a path such as /metrics`,
		"EXTRA_TAGS=a":                    `EXTRA_TAGS: "a" is not a list such as name:value,name:value`,
		"DEBUG_PORT=8081":                 `DEBUG_PORT: "127.0.0.1:8081" is not free: GRPC_PORT has it already`,
		"DRAIN_DELAY=-1s":                 `DRAIN_DELAY: "-1s" is not a duration from 0s to 1h`,
		"REDIS_TLS_CLIENT_CERT=c": `REDIS_TLS_CLIENT_CERT: "c" is not complete: it and REDIS_TLS_CLIENT_KEY go ` +
			`together`,
		"KEY_SECRET_FILE=/does/not/exist": `KEY_SECRET_FILE: open /does/not/exist: no such file or directory`,
		"GRPC_MAX_CONNECTION_AGE=-1s":     `GRPC_MAX_CONNECTION_AGE: "-1s" is not a duration from 0s`,
		"REDIS_URL=redis://h:1/x":         `REDIS_URL: "x" is not a database: use a number, as in redis://host:6379/0`,
		"GRPC_UDS=/" + long(107):          `GRPC_UDS: "/` + long(107) + `" is not a path of at most 107 bytes`,
		"ADMIN_TOP_KEYS=8":                `ADMIN_TOP_KEYS: "8" is not 0, or a number from 16 to 65536`,
		"ADMIN_DECISIONS=-1":              `ADMIN_DECISIONS: "-1" is not a number from 0 to 1048576`,
		"ADMIN_TLS_KEY=k": `ADMIN_TLS_KEY: set ADMIN_TLS_CERT as well, or remove it: the debug ` +
			`port has no TLS`,
		"ADMIN_TLS_CERT=c": `ADMIN_TLS_KEY: "" is not a file, which ADMIN_TLS_CERT needs`,
		"ADMIN_TLS_CERT=c ADMIN_TLS_OPERATORS=a": `ADMIN_TLS_OPERATORS: "a" is not checked without ` +
			`ADMIN_TLS_CLIENT_CA: set ` +
			`that too`,
		"GRPC_MAX_CONNECTION_AGE_GRACE=-1": `GRPC_MAX_CONNECTION_AGE_GRACE: "-1" is not a duration such as 10ms, 5s ` +
			`or 24h`,
	} {
		all := []string{environ}
		if strings.HasPrefix(environ, "ADMIN_") {
			all = strings.Fields(environ)
		}
		_, err := FromEnvironment(all, "sidecar")
		if err == nil || !slices.Contains(strings.Split(err.Error(), "\n"), want) {
			t.Errorf("%s gives\n\t%v\nwant a line\n\t%s", environ, err, want)
		}
	}
}

// TestAWrongValueIsReportedOnce: what cannot be read is not also outside of its range.
func TestAWrongValueIsReportedOnce(t *testing.T) {
	for _, name := range Variables() {
		_, unreadable := parse(new(Config), map[string]string{name: "/x?"})
		_, err := FromEnvironment([]string{name + "=/x?"}, "sidecar")
		if unreadable[name] && strings.Count("\n"+err.Error(), "\n"+name+": ") != 1 {
			t.Errorf("%s is not reported once:\n%v", name, err)
		}
	}
}

// TestASecretInAWrongPlaceIsNotShown puts a secret into each variable, by itself and as the password of a URL.
func TestASecretInAWrongPlaceIsNotShown(t *testing.T) {
	const secret = "Sup3rSecretPassw0rd"
	for _, name := range append(Variables(), ControlVariables()...) {
		for _, value := range []string{secret, "redis://u:" + secret + "@h:1"} {
			for _, read := range []func([]string) error{
				func(environ []string) error { _, err := FromEnvironment(environ, "sidecar"); return err },
				func(environ []string) error { _, _, err := ControlFromEnvironment(environ); return err },
			} {
				err := read([]string{name + "=" + value})
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s=%s: the error shows the secret:\n%v", name, value, err)
				}
			}
		}
		cfg, err := FromEnvironment([]string{name + "=redis://u:" + secret + "@h:1"}, "sidecar")
		if shown := fmt.Sprint(cfg.Shown(), cfg.Warnings); err == nil && strings.Contains(shown, secret) {
			t.Errorf("%s: the settings show the secret: %s", name, shown)
		}
	}
	cfg := fromEnv(t, "ADMIN_TOKEN_FILE="+secret)
	if got := cfg.Conceal("open " + secret + ": no such file"); got != "open (hidden): no such file" {
		t.Errorf("a token in place of its file is shown: %s", got)
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestAllProblemsAtOnce(t *testing.T) {
	environ := []string{"PORT=x", "SHADOW_MODE=x", "LOG_LEVEL=x", "GRPC_SERVER_USE_TLS=true", "REDIS_URL=x"}
	_, err := FromEnvironment(environ, "sidecar")
	var all *ConfigError
	if !errors.As(err, &all) {
		t.Fatalf("error is %T: %v", err, err)
	}
	if len(all.Problems) != 6 {
		t.Errorf("%d problems, want 6 (TLS lacks two files):\n%v", len(all.Problems), err)
	}
}

func TestTheSecretComesFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	if got := fromEnv(t, "KEY_SECRET_FILE="+file).Store.KeySecret; got != "s3cret" {
		t.Errorf("the secret is %q, want s3cret", got)
	}
	_, err := FromEnvironment([]string{"KEY_SECRET_FILE=" + file, "KEY_SECRET=x"}, "sidecar")
	if err == nil {
		t.Error("KEY_SECRET and KEY_SECRET_FILE together are taken")
	}
}

// TestAPasswordWithACommaIsNotShown: it makes no list of the URL.
func TestAPasswordWithACommaIsNotShown(t *testing.T) {
	cfg := fromEnv(t, "REDIS_URL=redis://:Sup3rSecretPassw0rd,x@127.0.0.1:6379")
	for _, s := range cfg.Shown() {
		if strings.Contains(s.Value, "Sup3r") {
			t.Errorf("%s shows the password: %s", s.Name, s.Value)
		}
	}
}

func TestShownValuesAreThoseThatWereSet(t *testing.T) {
	cfg := must.Get(FromEnvironment([]string{"TRACING_ENABLED=false", "GRPC_UDS=/tmp/s", "GRPC_UDS_MODE=0660",
		"EXTRA_TAGS=b:c,a:b"}, "sidecar"))(t)
	want := map[string]string{"TRACING_ENABLED": "false", "GRPC_UDS_MODE": "0660", "EXTRA_TAGS": "a:b,b:c"}
	for _, one := range cfg.Shown() {
		if value, asked := want[one.Name]; asked && one.Value != value {
			t.Errorf("%s is shown as %q, want %q", one.Name, one.Value, value)
		}
		delete(want, one.Name)
	}
	if len(want) > 0 {
		t.Errorf("%v are not shown", want)
	}
	unset := must.Get(FromEnvironment(nil, "sidecar"))(t)
	for _, one := range unset.Shown() {
		if one.Name == "TRACING_ENABLED" && one.Value != "" {
			t.Errorf("a variable that is not set is shown as %q", one.Value)
		}
	}
}
