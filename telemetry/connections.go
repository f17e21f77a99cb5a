package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// ConnectionStats is what peers hold through their connections.
type ConnectionStats struct {
	Open   map[string]int64 // connections by listener
	Bytes  int64
	Most   int64            // bytes that they may hold
	Closed map[string]int64 // connections by reason
}

// Connections measures the connections of peers.
func (t *Telemetry) Connections(stats func() ConnectionStats) {
	type S = ConnectionStats
	r := &readings[S]{take: stats}
	const p = "spillway_connection"
	gauge := func(name, help string, labels prometheus.Labels, value func(S) float64) {
		r.add(prometheus.GaugeValue, p+name, help, labels, value)
	}
	for _, port := range []string{"grpc", "http", "debug", "metrics"} {
		gauge("s", "Connections that peers have, by port.", prometheus.Labels{"port": port},
			func(s S) float64 { return float64(s.Open[port]) })
	}
	gauge("_bytes", "Memory that connections of peers take with what is not complete, estimated.", nil,
		func(s S) float64 { return float64(s.Bytes) })
	gauge("_bytes_most", "Memory that they may take; the memory limit sets it.", nil,
		func(s S) float64 { return float64(s.Most) })
	for _, reason := range []string{"room", "unfinished"} {
		r.add(prometheus.CounterValue, p+"s_closed_total",
			"Connections closed to make room, or because a request was not complete in time.",
			prometheus.Labels{"reason": reason}, func(s S) float64 { return float64(s.Closed[reason]) })
	}
	t.register.MustRegister(r)
}
