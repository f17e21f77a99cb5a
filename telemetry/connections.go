package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ConnectionStats is how many connections clients have.
type ConnectionStats struct {
	Open    int64
	Most    int64 // that they may have
	Refused int64
}

// Connections measures the connections of clients.
func (t *Telemetry) Connections(stats func() ConnectionStats) {
	type S = ConnectionStats
	r := &readings[S]{take: stats}
	r.add(prometheus.GaugeValue, "spillway_connections", "Connections that clients have over gRPC.", nil, func(s S) float64 { return float64(s.Open) })
	r.add(prometheus.GaugeValue, "spillway_connections_most", "Connections that clients may have over gRPC; the memory limit sets it.", nil, func(s S) float64 { return float64(s.Most) })
	r.add(prometheus.CounterValue, "spillway_connections_refused_total", "Connections closed because there were too many.", nil, func(s S) float64 { return float64(s.Refused) })
	t.register.MustRegister(r)
}
