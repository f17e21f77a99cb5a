package sidecar

import (
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/admin"
)

// api makes what the debug port serves under /v1.
func (s *Sidecar) api() (http.Handler, error) {
	a := &admin.API{
		Engine: s.engine, Records: s.records, Log: s.loadLog, Forget: s.forgetCounters,
	}
	err := s.access(&a.Access)
	if err != nil {
		return nil, err
	}
	return a.Handler(), nil
}

// access reads who may use the API.
func (s *Sidecar) access(a *admin.Access) error {
	c := &s.cfg.Admin
	a.Certified, a.Operators = c.ClientCA != "", c.OperatorNames()
	if c.Tokens == "" {
		return nil
	}
	file, err := admin.NewTokenFile(c.Tokens, func(err error) { s.log.Error("tokens cannot be read; those before stay", "error", err) })
	if err != nil {
		return err
	}
	a.Tokens = file.Tokens
	return nil
}

// fleetCard is what this sidecar shows about itself to the others.
type fleetCard struct {
	Host     string    `json:"host"`
	Version  string    `json:"version"`
	Rules    string    `json:"rules"` // hash of the rules in use
	Domains  []string  `json:"domains"`
	Started  time.Time `json:"started"`
	Loaded   time.Time `json:"loaded,omitzero"` // when the rules came into use
	Degraded []string  `json:"degraded"`
}

// card is what this sidecar shows about itself.
func (s *Sidecar) card() any {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	c := fleetCard{Host: host, Version: s.cfg.Version, Domains: s.domains(), Started: s.started, Degraded: append([]string{}, s.loads.degraded()...)}
	if c.Domains == nil {
		c.Domains = []string{}
	}
	if in := s.inUse.Load(); in != nil {
		c.Rules, c.Loaded = in.hash, in.at
	}
	c.Version = strings.TrimSpace(c.Version)
	return c
}

// rulesInUse is which rules are in use, and since when.
type rulesInUse struct {
	hash string
	at   time.Time
}
