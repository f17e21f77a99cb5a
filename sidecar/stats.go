package sidecar

import (
	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/store"
)

// counted is what this sidecar has counted, for the API. It reads counters and asks no server.
func (s *Sidecar) counted() admin.StatsView {
	card := s.card()
	view := admin.StatsView{
		Started: s.started.UTC(), Version: card.Version, Host: card.Host, Degraded: card.Degraded, Decisions: []admin.DecisionsView{},
		Store: admin.StoreView{Kind: "memory", Calls: map[string]int64{}, Breakers: []admin.BreakerView{}},
	}
	for _, d := range s.telemetry.Decisions() {
		view.Decisions = append(view.Decisions, admin.DecisionsView(d))
	}
	latency := s.telemetry.StoreLatency()
	view.Store.Latency = admin.LatencyView{Count: latency.Count, Seconds: latency.Seconds, Buckets: []admin.BucketView{}}
	for _, b := range latency.Buckets {
		view.Store.Latency.Buckets = append(view.Store.Latency.Buckets, admin.BucketView(b))
	}
	if s.servers != nil {
		view.Store.Kind, view.Store.Calls, view.Store.Breakers = "redis", s.telemetry.StoreCalls(), breakers(s.servers())
	}
	return view
}

// breakers are the breakers in front of servers, as the API shows them.
func breakers(servers []store.ServerStats) []admin.BreakerView {
	all := []admin.BreakerView{}
	for _, server := range servers {
		b := &server.Breaker
		one := admin.BreakerView{Server: server.Name, State: b.State.String(), Opened: b.Opened, Rejected: b.Rejected}
		if !b.Since.IsZero() {
			one.Since = b.Since.UTC()
		}
		all = append(all, one)
	}
	return all
}
