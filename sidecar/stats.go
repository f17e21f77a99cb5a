package sidecar

import (
	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/door/connlimit"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/rules/xds"
	"github.com/spillway-mesh/spillway/store"
	"github.com/spillway-mesh/spillway/store/memory"
)

// Stats is what the rooms of a sidecar count. The tags in it, and in their Stats, name the metrics: telemetry.Measure
// reads them. What is nil is not there.
type Stats struct {
	Engine      engine.Stats
	Identity    identity.Stats
	Memory      *memory.Stats `labels:"store=main"`
	Share       *memory.Stats `labels:"store=share"`
	Redis       *store.RedisStats
	Live        *LiveStats
	Profiles    *profiles.Stats
	Journal     *journal.Stats
	XDS         *xds.Status
	Recent      *live.RecentStats
	Connections connlimit.Stats
}

// LiveStats is how many sidecars share the store, as last known.
type LiveStats struct {
	All     int            `metric:"live_sidecars" help:"Sidecars that share the store."`
	Domains map[string]int `metric:"domain_sidecars" label:"domain" help:"Of these, those with rules for the domain."`
}

// Stats returns what was counted so far.
func (s *Sidecar) Stats() *Stats {
	c := &s.counts
	all := &Stats{Engine: c.engine.Stats(), Identity: c.keys.Stats(), Connections: s.serving.clients.Stats()}
	counted := c.memory.Stats()
	if c.redis == nil {
		all.Memory = &counted
	} else {
		known, shared := c.profiles.Stats(), c.redis.Stats()
		all.Share, all.Profiles, all.Redis = &counted, &known, &shared
		all.Live = &LiveStats{All: c.redis.Live(""), Domains: map[string]int{}}
		for _, domain := range s.domains() {
			all.Live.Domains[domain] = c.redis.Live(domain)
		}
	}
	if c.journal != nil {
		recorded := c.journal.Stats()
		all.Journal = &recorded
	}
	if s.updates.xds != nil {
		status := s.updates.xds.Status()
		all.XDS = &status
	}
	if s.reports.recent != nil {
		counted := s.reports.recent.Stats()
		all.Recent = &counted
	}
	return all
}

// counted is what this sidecar has counted, for the API. It asks servers for a sign of life alone.
func (s *Sidecar) counted() admin.StatsView {
	away := ""
	if s.counts.redis != nil {
		away = s.storeAway(s.counts.redis.Ping)
	}
	card, t := s.card(s.degradedServing(away)), s.reports.telemetry
	view := admin.StatsView{
		Started: s.started.UTC(), Version: card.Version, Host: card.Host, Degraded: card.Degraded,
		Decisions: []admin.DecisionsView{},
		Store: admin.StoreView{Kind: "memory", Calls: map[string]int64{}, Breakers: []admin.BreakerView{},
			Away: away},
	}
	for _, d := range t.Decisions() {
		view.Decisions = append(view.Decisions, admin.DecisionsView(d))
	}
	latency := t.StoreLatency()
	view.Store.Latency = admin.LatencyView{Count: latency.Count, Seconds: latency.Seconds,
		Buckets: []admin.BucketView{}}
	for _, b := range latency.Buckets {
		view.Store.Latency.Buckets = append(view.Store.Latency.Buckets, admin.BucketView(b))
	}
	if s.counts.redis != nil {
		servers := s.counts.redis.Stats().Servers
		view.Store.Kind, view.Store.Calls, view.Store.Breakers = "redis", t.StoreCalls(), breakers(servers)
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
