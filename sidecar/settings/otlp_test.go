package settings

import (
	"slices"
	"strings"
	"testing"
)

func TestWhenMetricsGoOverOTLP(t *testing.T) {
	for environ, want := range map[string]struct{ on, grpc bool }{
		"": {},
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318":                                          {},
		"OTEL_METRICS_EXPORTER=otlp":                                                                 {on: true},
		"OTEL_METRICS_EXPORTER=none":                                                                 {},
		"OTEL_METRICS_EXPORTER=console,otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                        {on: true, grpc: true},
		"OTEL_METRICS_EXPORTER=otlp TRACING_EXPORTER_PROTOCOL=grpc":                                  {on: true, grpc: true},
		"OTEL_METRICS_EXPORTER=otlp OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc":                         {on: true},
		"OTEL_METRICS_EXPORTER=otlp OTEL_SDK_DISABLED=true":                                          {},
		"OTEL_METRICS_EXPORTER=otlp DISABLE_STATS=true":                                              {},
		"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=grpc OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf":         {grpc: true},
		"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_PROTOCOL=grpc":         {},
		"OTEL_METRICS_EXPORTER=OTLP OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://collector/v1/metrics": {on: true},
	} {
		cfg := fromEnv(t, strings.Fields(environ)...)
		if cfg.ExportsMetrics() != want.on || cfg.MetricsOverGRPC() != want.grpc {
			t.Errorf("with %q metrics are sent: %v, over gRPC: %v, want %+v", environ, cfg.ExportsMetrics(),
				cfg.MetricsOverGRPC(), want)
		}
	}
}

func TestSettingsOfOTLPThatDoNothingAreNamed(t *testing.T) {
	for want, environ := range map[string]string{
		"OTEL_METRICS_EXPORTER=prometheus: use otlp or none":        "OTEL_METRICS_EXPORTER=prometheus",
		"PROTOCOL=smoke: use grpc, http/protobuf or http/json":      "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=smoke",
		"OTEL_METRICS_EXPORTER: DISABLE_STATS=true turns it off":    "OTEL_METRICS_EXPORTER=otlp DISABLE_STATS=true",
		"no metrics are sent there; set OTEL_METRICS_EXPORTER=otlp": "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://h:4318",
	} {
		cfg := fromEnv(t, strings.Fields(environ)...)
		if !slices.ContainsFunc(cfg.Warnings, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("%q is not among %q", want, cfg.Warnings)
		}
	}
}

func TestHeadersOfOTLPMetricsAreSecret(t *testing.T) {
	cfg := fromEnv(t, "OTEL_EXPORTER_OTLP_METRICS_HEADERS=authorization=Bearer%20abcdef")
	if !slices.Contains(cfg.Secrets(), "abcdef") {
		t.Errorf("the token is not among the secrets")
	}
}
