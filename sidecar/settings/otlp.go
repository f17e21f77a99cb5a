package settings

// OTLP is whether metrics are sent over OTLP as well, and how. The libraries read the rest of
// OTEL_EXPORTER_OTLP_*; the endpoint is that of traces unless it has a variable of its own.
type OTLP struct {
	// otlp: sends all metrics over OTLP as well; none, or unset: does not
	Exporter string `env:"OTEL_METRICS_EXPORTER"`
	// URL of the collector of metrics; goes before OTEL_EXPORTER_OTLP_ENDPOINT
	Endpoint string `env:"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"`
	// grpc or http/protobuf; goes before OTEL_EXPORTER_OTLP_PROTOCOL
	Protocol string `env:"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"`
	// headers of each export of metrics, as k=v,k=v; secret
	Headers string `env:"OTEL_EXPORTER_OTLP_METRICS_HEADERS"`
	// milliseconds from one export of metrics to the next
	Every int `env:"OTEL_METRIC_EXPORT_INTERVAL" envDefault:"60000" in:"100.."`
}

// ExportsMetrics reports whether metrics are sent over OTLP.
func (c *Config) ExportsMetrics() bool {
	return !c.Metrics.Disabled && !one(c.Tracing.SDK, "true") && exports(c.OTLP.Exporter, "otlp")
}

// MetricsOverGRPC reports whether they go over gRPC.
func (c *Config) MetricsOverGRPC() bool { return c.Tracing.overGRPC(c.OTLP.Protocol) }

// warnOTLP adds a line for each value that is set without effect.
func (c *Config) warnOTLP(add func(is bool, line string)) {
	o := &c.OTLP
	add(o.Exporter != "" && !exports(o.Exporter, "otlp") && !exports(o.Exporter, "none"),
		"OTEL_METRICS_EXPORTER="+o.Exporter+": use otlp or none")
	add(!one(o.Protocol, "", "grpc", "http/protobuf", "http/json"),
		"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="+o.Protocol+": use grpc, http/protobuf or http/json")
	add(c.Metrics.Disabled && exports(o.Exporter, "otlp"),
		"OTEL_METRICS_EXPORTER: DISABLE_STATS=true turns it off; remove one of them")
	add(o.Endpoint != "" && o.Exporter == "",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: no metrics are sent there; set OTEL_METRICS_EXPORTER=otlp as well")
}
