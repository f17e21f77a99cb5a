package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mesh/spillway/rules/xds"
)

// XDS measures the management server that rules come from.
func (t *Telemetry) XDS(status func() xds.Status) {
	type S = xds.Status
	r := &readings[S]{take: status}
	add := func(kind prometheus.ValueType, name, help string, value func(S) float64) {
		r.add(kind, "spillway_xds_"+name, help, nil, value)
	}
	add(prometheus.GaugeValue, "connected", "Whether a stream to the management server is open.", func(s S) float64 {
		if s.Connected {
			return 1
		}
		return 0
	})
	add(prometheus.CounterValue, "streams_total", "Streams that were opened to the management server.", func(s S) float64 { return float64(s.Streams) })
	add(prometheus.CounterValue, "responses_total", "Responses that the management server sent.", func(s S) float64 { return float64(s.Responses) })
	add(prometheus.CounterValue, "refusals_total", "Refusals (NACK) that were sent to the management server; the last good rules stay.", func(s S) float64 { return float64(s.Refusals) })
	add(prometheus.GaugeValue, "resources", "Resources in the last accepted response.", func(s S) float64 { return float64(s.Resources) })
	t.register.MustRegister(r, xdsInfo{status})
}

// xdsInfo names the last accepted version: one series at a time.
type xdsInfo struct{ status func() xds.Status }

// Describe describes nothing, so that there may be no series before the first accepted response.
func (i xdsInfo) Describe(chan<- *prometheus.Desc) {}

// Collect sends the version of the last accepted response.
func (i xdsInfo) Collect(out chan<- prometheus.Metric) {
	s := i.status()
	if s.Accepted.IsZero() {
		return
	}
	desc := prometheus.NewDesc("spillway_xds_info", "Always 1; the label is the version of the last accepted response.", []string{"version"}, nil)
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1, clean(s.Version))
}
