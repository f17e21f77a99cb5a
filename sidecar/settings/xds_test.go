package settings

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// xdsEnvironment is the least that rules over xDS need.
var xdsEnvironment = []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001"}

func TestProblemsOfXDSNameVariableAndRemedy(t *testing.T) {
	for set, want := range map[string]string{
		"CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway": `CONFIG_GRPC_XDS_SERVER_URL: "envoy-gateway" is not host:port, ` +
			`such as envoy-gateway:18001, or unix:///path`,
		"CONFIG_GRPC_XDS_SERVER_URL=http://envoy-gateway:18001": `is not host:port`,
		"CONFIG_GRPC_XDS_SERVER_URL=:18001":                     `is not host:port`,
		"CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:0":            `is not host:port`,
		"CONFIG_GRPC_XDS_SERVER_URL=unix://relative":            `is not host:port`,
		"CONFIG_GRPC_XDS_NODE_METADATA=zone": `CONFIG_GRPC_XDS_NODE_METADATA: "zone" is not a list such as ` +
			`name=value,name=value`,
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=no value": `is not a list such as name:value,name:value`,
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=bad name:value": `CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: "bad ` +
			`name" is not the name of a header`,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=ca.crt": `CONFIG_GRPC_XDS_SERVER_TLS_CACERT: set ` +
			`CONFIG_GRPC_XDS_SERVER_USE_TLS=true as well`,
		"CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway": `CONFIG_GRPC_XDS_SERVER_TLS_SAN: set ` +
			`CONFIG_GRPC_XDS_SERVER_USE_TLS=true as well`,
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c CONFIG_GRPC_XDS_SERVER_USE_TLS=true": `CONFIG_GRPC_XDS_CLIENT_TLS_CERT: ` +
			`"c" is not complete: it and CONFIG_GRPC_XDS_CLIENT_TLS_KEY go together`,
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=0s": `XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: "0s" is not a duration from ` +
			`10ms to 1h`,
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=soon": `XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: "soon" is not a duration ` +
			`such as 10ms, 5s or 24h`,
		"XDS_CLIENT_BACKOFF_MAX_INTERVAL=2h": `XDS_CLIENT_BACKOFF_MAX_INTERVAL: "2h0m0s" is not a duration from 10ms ` +
			`to 1h`,
		"XDS_CLIENT_BACKOFF_RANDOM_FACTOR=-1": `XDS_CLIENT_BACKOFF_RANDOM_FACTOR: "-1" is not a number above 0 and ` +
			`at most 100`,
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=12": `XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: "12" is not 0, or a number from ` +
			`1024 to 268435456`,
	} {
		environ := slices.Clone(xdsEnvironment)
		if strings.Contains(set, " CONFIG") {
			environ = append(environ, strings.Fields(set)...)
		} else {
			environ = append(environ, set)
		}
		_, err := FromEnvironment(environ, "ratelimit")
		var wrong *ConfigError
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Error(), want) {
			t.Errorf("%s gives\n\t%v\nwant\n\t%s", set, err, want)
		}
	}
}

// TestEnvoyGatewaysEnvironment is what Envoy Gateway gives its rate limit Deployment.
func TestEnvoyGatewaysEnvironment(t *testing.T) {
	cfg, err := FromEnvironment(strings.Fields(`
		RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_IGNOREDOTFILES=true
		RUNTIME_WATCH_ROOT=false LOG_LEVEL=info USE_STATSD=false
		CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001 CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit
		GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/certs/tls.crt GRPC_SERVER_TLS_KEY=/certs/tls.key
		GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt
		CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt
		CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key
		CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt FORCE_START_WITHOUT_INITIAL_CONFIG=true
		REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379 USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001
		PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml`), "/bin/ratelimit")
	if err != nil {
		t.Fatalf("the environment is refused: %v", err)
	}
	if !cfg.Rules.FromXDS() || cfg.XDS.Host() != "envoy-gateway" || cfg.XDS.NodeID != "envoy-ratelimit" ||
		!cfg.XDS.TLS {
		t.Errorf("xDS = %+v", cfg.XDS)
	}
	if len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0], "PROMETHEUS_MAPPER_YAML") {
		t.Errorf("warnings = %q, want one about PROMETHEUS_MAPPER_YAML", cfg.Warnings)
	}
}

func TestXDSVariablesBesideFilesAreAnnounced(t *testing.T) {
	cfg := fromEnv(t, "CONFIG_GRPC_XDS_SERVER_URL=a:1", "CONFIG_GRPC_XDS_SERVER_USE_TLS=false",
		"XDS_CLIENT_BACKOFF_JITTER=true")
	want := []string{
		"ignored: CONFIG_GRPC_XDS_SERVER_URL: set CONFIG_TYPE=GRPC_XDS_SOTW as well: rules come from files",
		"ignored: XDS_CLIENT_BACKOFF_JITTER: set CONFIG_TYPE=GRPC_XDS_SOTW as well: rules come from files",
	}
	if !slices.Equal(cfg.Warnings, want) {
		t.Errorf("warnings = %q, want %q", cfg.Warnings, want)
	}
}

func TestTokensOfXDSHeadersAreSecret(t *testing.T) {
	cfg := fromEnv(t, append(slices.Clone(xdsEnvironment),
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=authorization:abcdefgh12,env:prod",
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=0",
		"CONFIG_GRPC_XDS_NODE_METADATA=zone=a,rack=b=c")...)
	for _, shown := range cfg.Shown() {
		if strings.Contains(shown.Value, "abcdefgh12") {
			t.Errorf("%s shows a token: %s", shown.Name, shown.Value)
		}
	}
	if cfg.XDS.MaxMessage != 16<<20 || cfg.XDS.Fields()["zone"] != "a" || cfg.XDS.Fields()["rack"] != "b=c" {
		t.Errorf("xDS = %+v", cfg.XDS)
	}
}
