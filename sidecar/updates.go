package sidecar

import (
	"sync"
	"sync/atomic"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/redis/peers"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/rules/xds"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// updates is what changes while a sidecar runs: the rules, and what other sidecars announce.
type updates struct {
	files    *rules.Files  // nil: none are read
	xds      *xds.Source   // nil without a management server
	xdsTried chan struct{} // closed when the first attempt to reach it failed
	xdsOnce  sync.Once
	loads    loads
	inUse    atomic.Pointer[rulesInUse] // nil: before the first rules
	peers    *peers.Peers               // nil without Redis
}

// Start makes the sources of the rules, which Run watches, and subscribes to what other sidecars announce. Beside a
// management server files are read only where RULES names them, and published rules only where it names redis: the
// reference server reads none there, and its deployments leave RUNTIME_ROOT set.
func (u *updates) Start(s *Sidecar) error {
	cfg := filesConfig(&s.cfg)
	cfg.Compile.Identity = func(domain string, of *identity.Config) *identity.Resolver {
		return identity.New(*of, s.counts.keys, identity.Options{Domain: domain, Keys: s.keysOf(domain)})
	}
	if _, published := s.cfg.Rules.Sources(); published && s.counts.redis != nil {
		cfg.Published, cfg.Guard = s.readPublished, s.counts.redis.Client().Guard
	}
	if !s.cfg.Rules.FromXDS() || cfg.Path != "" || cfg.Published != nil {
		u.files = rules.NewFiles(cfg)
	}
	err := s.openXDS(&cfg)
	if err == nil && s.counts.redis != nil {
		s.openPeers()
	}
	return err
}

// Stop ends the subscription. The sources of the rules end with Run.
func (u *updates) Stop() {
	if u.peers != nil {
		_ = u.peers.Close() // it cannot fail
	}
}

// filesConfig is where the rules are, in the terms of package rules.
func filesConfig(c *settings.Config) rules.FilesConfig {
	path, published := c.Rules.Sources()
	root := c.Rules.Root
	if published {
		root = ""
	}
	return rules.FilesConfig{
		Path: path, RuntimeRoot: root, RuntimeSubdirectory: c.Rules.Subdirectory,
		RuntimeAppDirectory: c.Rules.AppDirectory,
		IgnoreDotFiles:      c.Rules.IgnoreDots, WatchRoot: c.Rules.WatchRoot, MergeDomains: c.Rules.Merge,
		SpareDenied: c.Rules.SpareDenied,
		Compile:     descriptors.Options{KeyPrefix: c.Store.KeyPrefix, KeySecret: []byte(c.Store.KeySecret)},
	}
}
