package settings

import (
	"net/url"
	"slices"
	"strings"
)

// Tracing is whether requests are traced, and how. The variables that begin with TRACING_ are the reference server's,
// the others OpenTelemetry's. Where both are set, OpenTelemetry's win, and a variable that turns traces off wins over
// one that turns them on. The libraries read the rest of OTEL_EXPORTER_OTLP_*, OTEL_BSP_* and OTEL_RESOURCE_ATTRIBUTES
// themselves.
type Tracing struct {
	// turns traces on or off; unset: on where OTEL_TRACES_EXPORTER is otlp, or an endpoint is set
	Enabled *bool `env:"TRACING_ENABLED"`
	// how spans are sent: http or grpc
	Over string `env:"TRACING_EXPORTER_PROTOCOL" envDefault:"http" in:"http|grpc"`
	// name of this service in traces; OTEL_SERVICE_NAME goes before it
	Service string `env:"TRACING_SERVICE_NAME" envDefault:"RateLimit"`
	// namespace of this service in traces
	Namespace string `env:"TRACING_SERVICE_NAMESPACE"`
	// id of this sidecar in traces; unset: a random one
	Instance string `env:"TRACING_SERVICE_INSTANCE_ID"`
	// share of the requests without a caller's span that get one, 0 to 1; OTEL_TRACES_SAMPLER goes before it
	Rate float64 `env:"TRACING_SAMPLING_RATE" envDefault:"1" in:"0..1"`
	// true: no traces, also where other variables turn them on
	SDK string `env:"OTEL_SDK_DISABLED"`
	// otlp, or none for no traces
	Exporter string `env:"OTEL_TRACES_EXPORTER"`
	// URL of the collector; turns traces on
	Endpoint string `env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	// the same for traces alone; turns them on
	TracesEndpoint string `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"`
	// grpc, http/protobuf or http/json
	Protocol string `env:"OTEL_EXPORTER_OTLP_PROTOCOL"`
	// goes before OTEL_EXPORTER_OTLP_PROTOCOL
	TracesProtocol string `env:"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"`
	// sent to the collector along with spans; secret
	Headers string `env:"OTEL_EXPORTER_OTLP_HEADERS"`
	// the same for traces alone; secret
	TracesHeaders string `env:"OTEL_EXPORTER_OTLP_TRACES_HEADERS"`
	// headers that may carry Envoy's span: tracecontext, b3, b3multi
	Callers string `env:"OTEL_PROPAGATORS" envDefault:"tracecontext,b3"`
	// as OpenTelemetry defines it, with OTEL_TRACES_SAMPLER_ARG
	Sampler string `env:"OTEL_TRACES_SAMPLER"`
	// spans that wait to be sent; further ones are dropped and counted
	Queue int `env:"OTEL_BSP_MAX_QUEUE_SIZE" envDefault:"2048" in:"1.."`
}

// On reports whether requests are traced.
func (t *Tracing) On() bool {
	switch {
	case one(t.SDK, "true"), one(t.Exporter, "none"):
		return false
	case t.Enabled != nil:
		return *t.Enabled
	case t.Exporter != "":
		return exports(t.Exporter, "otlp")
	}
	return t.Endpoint != "" || t.TracesEndpoint != ""
}

// exports reports whether a list of exporters names one.
func exports(listed, name string) bool { return slices.Contains(list(listed), name) }

// GRPC reports whether spans go over gRPC.
func (t *Tracing) GRPC() bool { return t.overGRPC(t.TracesProtocol) }

// overGRPC reports whether OTLP goes over gRPC, where own is the protocol of one kind of data, or empty.
func (t *Tracing) overGRPC(own string) bool {
	for _, protocol := range []string{own, t.Protocol} {
		switch {
		case one(protocol, "grpc"):
			return true
		case one(protocol, "http/protobuf", "http/json"):
			return false
		}
	}
	return one(t.Over, "grpc")
}

// Propagators are the entries of OTEL_PROPAGATORS, in lower case.
func (t *Tracing) Propagators() []string { return list(t.Callers) }

// list returns the entries of a list with commas in between, in lower case and without blanks.
func list(text string) []string {
	var all []string
	for entry := range strings.SplitSeq(strings.ToLower(text), ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			all = append(all, entry)
		}
	}
	return all
}

// warn adds a line for each value that is set without effect. All programs of a platform share OpenTelemetry's
// variables, so a value that means nothing here is allowed.
func (t *Tracing) warn(add func(is bool, line string)) {
	if !t.On() && t.Exporter == "" {
		return
	}
	add(t.Exporter != "" && !exports(t.Exporter, "otlp") && !exports(t.Exporter, "none"),
		"OTEL_TRACES_EXPORTER="+t.Exporter+": use otlp or none")
	for _, name := range t.Propagators() {
		known := one(name, "tracecontext", "b3", "b3multi", "none")
		// Baggage is for services that call further ones. The sidecar calls none, so it needs no warning.
		add(!known && name != "baggage", "OTEL_PROPAGATORS: "+name+": use tracecontext, b3 or b3multi")
	}
	for _, protocol := range [][2]string{{"OTEL_EXPORTER_OTLP_PROTOCOL", t.Protocol},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", t.TracesProtocol}} {
		add(!one(protocol[1], "", "grpc", "http/protobuf", "http/json"),
			protocol[0]+"="+protocol[1]+": use grpc, http/protobuf or http/json")
	}
}

// secrets are the values of the headers, which often are credentials, as they are written and as they are sent.
func (c *Config) otlpSecrets() []string {
	var all []string
	t, o := &c.Tracing, &c.OTLP
	for pair := range strings.SplitSeq(t.Headers+","+t.TracesHeaders+","+o.Headers, ",") {
		_, value, found := strings.Cut(pair, "=")
		if !found {
			value = pair
		}
		value = strings.TrimSpace(value)
		all = append(all, value)
		plain, err := url.PathUnescape(value)
		if err == nil {
			all = append(all, plain, plain[strings.LastIndexByte(plain, ' ')+1:])
		}
	}
	for _, endpoint := range []string{t.Endpoint, t.TracesEndpoint, o.Endpoint} {
		all = append(all, passwordIn(endpoint))
	}
	return all
}
