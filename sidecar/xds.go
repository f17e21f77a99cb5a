package sidecar

import (
	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/rules/xds"
)

// openXDS makes the source of the rules of a management server, where there is one.
func (s *Sidecar) openXDS(files *rules.FilesConfig) error {
	if !s.cfg.Rules.FromXDS() {
		return nil
	}
	c := &s.cfg.XDS
	cfg := xds.Config{
		Server: c.Server, NodeID: c.NodeID, Metadata: c.Fields(), Headers: c.Headers,
		MaxMessage: min(c.MaxMessage, int(s.counts.budget.response)), MaxMemory: s.counts.budget.rules,
		RetryFirst: c.RetryFirst, RetryMost: c.RetryMost, RetryGrows: c.RetryGrows, Steady: !c.Jitter,
		MergeDomains: files.MergeDomains, SpareDenied: files.SpareDenied, Compile: files.Compile,
		OnState: s.xdsChanged, OnPanic: s.reports.observer.Panicked,
	}
	if c.TLS {
		var err error
		cfg.TLS, err = xdsTLS(c, s.reports.log)
		if err != nil {
			return err
		}
	}
	s.updates.xdsTried = make(chan struct{})
	s.updates.xds = xds.New(cfg)
	return nil
}

// xdsChanged logs that a stream to the management server was opened, or that none is open. It is called from one
// goroutine.
func (s *Sidecar) xdsChanged(up bool, reason error) {
	if up {
		s.reports.loadLog.Info("connected to the management server", "server", s.cfg.XDS.Server, "node",
			s.cfg.XDS.NodeID)
		return
	}
	s.updates.xdsOnce.Do(func() { close(s.updates.xdsTried) })
	s.reports.log.Warn("no stream to the management server; trying again, and the rules stay as they are", "server",
		s.cfg.XDS.Server, "error", reason)
}

// xdsDegraded names what does not work with the management server.
func (s *Sidecar) xdsDegraded() []string {
	if s.updates.xds == nil {
		return nil
	}
	st := s.updates.xds.Status()
	if st.Connected || st.Since.IsZero() {
		return nil
	}
	return []string{"xds: no stream to " + st.Server}
}

// described are the attributes of a load in the log.
func (s *Sidecar) described(from origin, load rules.Load) []any {
	if from == fromFiles {
		return []any{"files", load.Files}
	}
	st := s.updates.xds.Status()
	version := st.Version
	if load.Rejected() {
		version = st.Newest
	}
	return []any{"source", "xds", "version", version, "resources", load.Files}
}

// xdsView is the management server for pages; nil without one.
func (s *Sidecar) xdsView() *admin.XDSView {
	if s.updates.xds == nil {
		return nil
	}
	st := s.updates.xds.Status()
	view := &admin.XDSView{
		Server: st.Server, Connected: st.Connected, Since: st.Since, Error: st.Error, Version: st.Version,
		Accepted:  st.Accepted,
		Resources: st.Resources, Refused: st.Refused, Refusals: st.Refusals, Hides: []string{},
	}
	s.updates.loads.mu.Lock()
	defer s.updates.loads.mu.Unlock()
	for _, p := range s.updates.loads.hidden {
		view.Hides = append(view.Hides, p.File)
	}
	return view
}
