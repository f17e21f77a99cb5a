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
	for _, port := range []string{"grpc", "http", "debug", "metrics"} {
		r.add(prometheus.GaugeValue, "spillway_connections", "Connections that peers have, by port.", prometheus.Labels{"port": port},
			func(s S) float64 { return float64(s.Open[port]) })
	}
	r.add(prometheus.GaugeValue, "spillway_connection_bytes", "Memory that connections and unfinished requests of peers take, estimated.", nil,
		func(s S) float64 { return float64(s.Bytes) })
	r.add(prometheus.GaugeValue, "spillway_connection_bytes_most", "Memory that they may take; the memory limit sets it.", nil,
		func(s S) float64 { return float64(s.Most) })
	for _, reason := range []string{"room", "unfinished"} {
		r.add(prometheus.CounterValue, "spillway_connections_closed_total",
			"Connections closed to make room, or because a request was not complete in time.", prometheus.Labels{"reason": reason},
			func(s S) float64 { return float64(s.Closed[reason]) })
	}
	t.register.MustRegister(r)
}
