package sidecar

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store"
	"github.com/spillway-mesh/spillway/store/memory"
)

// counts is what a sidecar decides by: the store, the engine, what is known about identities, and the journal of what
// was decided.
type counts struct {
	budget      budget
	redis       *store.Redis // nil: everything is counted in memory
	memory      *memory.Memory
	keys        *identity.KeySets
	profiles    *profiles.Store
	engine      *engine.Engine
	journal     *journal.Journal // nil: nothing is recorded
	journalConn *redis.Client    // its own, so that decisions do not wait for it
	abouts      abouts           // what the servers of Redis are
}

// Start makes the store that the settings ask for, where counter is nil, and the engine in front of it. It does not
// wait for Redis to be there.
func (c *counts) Start(s *Sidecar, counter engine.Counter) (err error) {
	c.budget = budgetOf(s.cfg.Memory, os.DirFS("/"))
	cfg := engine.Config{
		Clock: engine.NewClock(time.Now), Shadow: s.cfg.Answer.Shadow, Quota: s.cfg.Answer.Quota,
		Waiters: s.cfg.Store.Waiters, ReservedBytes: c.budget.reserved,
		OnOverAdmitted: s.reports.observer.OverAdmitted, OnPanic: s.reports.observer.Panicked,
	}
	if counter == nil && s.cfg.Redis.URL != "" {
		err = s.openRedis()
		if err != nil {
			return err
		}
		counter, cfg.Live = c.redis, c.redis.Live
	}
	c.keys = identity.NewKeySets(identity.KeySetsConfig{OnRefresh: s.reports.observer.KeysLoaded,
		Bytes: c.budget.tokens})
	s.openProfiles()
	err = s.openJournal()
	if err != nil {
		return err
	}
	// The store in memory counts everything, or beside a shared store the local shares, by the shared store's clock.
	own := memory.Config{Keys: s.cfg.Store.MaxKeys, Bytes: c.budget.counters}
	cfg.Store = counter
	if counter != nil {
		own.Now = cfg.Clock.Now
	}
	c.memory = memory.New(own)
	if counter == nil {
		cfg.Store = c.memory
	} else {
		cfg.Share = c.memory
	}
	cfg.Profiles = c.profiles
	s.observe(&cfg)
	c.engine = engine.New(cfg)
	return nil
}

// Stop writes what is left of the journal, and gives back the rest.
func (c *counts) Stop() (failed error) {
	if c.journal != nil {
		if lost := c.journal.Close(); lost > 0 {
			failed = fmt.Errorf("close the record: %d rows of usage and events could not be written to redis, and "+
				"are lost",
				lost)
		}
	}
	if c.journalConn != nil {
		c.journalConn.Close()
	}
	if c.engine != nil {
		failed = errors.Join(failed, c.engine.Close())
	}
	if c.keys != nil {
		c.keys.Close()
	}
	if c.profiles != nil {
		failed = errors.Join(failed, c.profiles.Close())
	}
	c.abouts.stop()
	if c.redis != nil {
		failed = errors.Join(failed, c.redis.Close())
	}
	return failed
}
