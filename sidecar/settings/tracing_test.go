package settings

import (
	"strings"
	"testing"
)

func TestWhenRequestsAreTraced(t *testing.T) {
	const endpoint, otlp = "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318", "OTEL_TRACES_EXPORTER=otlp"
	for environ, want := range map[string]bool{
		"":                     false,
		"TRACING_ENABLED=true": true,
		"TRACING_ENABLED=false " + endpoint + " " + otlp: false,
		endpoint: true,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://collector:4318/v1/traces": true,
		otlp:                                true,
		"OTEL_TRACES_EXPORTER=console,otlp": true,
		"OTEL_TRACES_EXPORTER=zipkin " + endpoint:             false,
		"OTEL_TRACES_EXPORTER=none TRACING_ENABLED=true":      false,
		"OTEL_SDK_DISABLED=TRUE TRACING_ENABLED=true":         false,
		"OTEL_SDK_DISABLED=maybe TRACING_ENABLED=true":        true,
		"OTEL_SERVICE_NAME=x OTEL_TRACES_SAMPLER=always_on":   false,
		"TRACING_SAMPLING_RATE=0.5 TRACING_SERVICE_NAME=mine": false,
	} {
		cfg := fromEnv(t, strings.Fields(environ)...)
		if got := cfg.Tracing.On(); got != want {
			t.Errorf("with %q requests are traced: %v, want %v", environ, got, want)
		}
	}
}

func TestWhichProtocolSpansTake(t *testing.T) {
	for environ, want := range map[string]bool{
		"":                                 false,
		"TRACING_EXPORTER_PROTOCOL=grpc":   true,
		"TRACING_EXPORTER_PROTOCOL=GRPC":   true,
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc": true,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf TRACING_EXPORTER_PROTOCOL=grpc":             false,
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json":        false,
		"OTEL_EXPORTER_OTLP_PROTOCOL=smoke TRACING_EXPORTER_PROTOCOL=grpc":                     true,
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf":    true,
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=carrier-pigeon OTEL_EXPORTER_OTLP_PROTOCOL=grpc":   true,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 OTEL_EXPORTER_OTLP_PROTOCOL=GRPC":   true,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 TRACING_EXPORTER_PROTOCOL=http":     false,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=unknown": false,
	} {
		cfg := fromEnv(t, strings.Fields(environ)...)
		if got := cfg.Tracing.GRPC(); got != want {
			t.Errorf("with %q spans go over gRPC: %v, want %v", environ, got, want)
		}
	}
}

func TestSettingsOfTracesThatAreWrong(t *testing.T) {
	for environ, want := range map[string]string{
		"TRACING_ENABLED=maybe":             `TRACING_ENABLED: "maybe" is not true or false`,
		"TRACING_EXPORTER_PROTOCOL=thrift":  `TRACING_EXPORTER_PROTOCOL: "thrift" is not http or grpc`,
		"TRACING_SAMPLING_RATE=2":           `TRACING_SAMPLING_RATE: "2" is not a number from 0 to 1`,
		"OTEL_BSP_MAX_QUEUE_SIZE=-1":        `OTEL_BSP_MAX_QUEUE_SIZE: "-1" is not a number from 1`,
		"LOG_DECISIONS=some":                `LOG_DECISIONS: "some" is not one of off, refused, all`,
		"LOG_DECISIONS_RATE=1/1000":         `LOG_DECISIONS_RATE: "1/1000" is not a number such as 0.8`,
		"LOG_DECISIONS_RATE=1.5":            `LOG_DECISIONS_RATE: "1.5" is not a number from 0 to 1`,
		"OTEL_EXPORTER_OTLP_PROTOCOL=smoke": "",
	} {
		_, err := FromEnvironment([]string{environ}, "sidecar")
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %q", environ, err, want)
		}
	}
}
