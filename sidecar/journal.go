package sidecar

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
)

// Bounds of the writing of the journal. It has a connection and patience of its own, so that decisions do not wait for
// it.
const (
	journalPatience = 2 * time.Second
	journalEnd      = 2 * time.Second // for what is left when the sidecar stops
)

// openJournal starts the journal, if there is to be one.
func (s *Sidecar) openJournal() error {
	if !s.cfg.Record.Use || s.counts.redis == nil {
		return nil
	}
	servers, err := s.cfg.Redises()[0].Servers(s.cfg.RedisTLS, s.reports.log, s.reports.secrets.AddRecent)
	if err != nil {
		return fmt.Errorf("set up Redis for the record: %w", err)
	}
	servers.Dial = s.world.Dial
	own := redis.New(redis.Config{Servers: servers, Prefix: "record ", OnPanic: s.reports.observer.Survived})
	s.counts.journalConn = own
	secret := []byte(s.cfg.Store.KeySecret)
	if s.cfg.Record.Plain {
		secret = nil
	}
	cfg := journal.Config{
		Region: s.cfg.Record.Region, AllowedIn: uint32(s.cfg.Record.AllowedOneIn), Patience: journalEnd,
		Append: appendTo(own, s.redisNames(), s.cfg.Record.Length),
		Name:   keys.NewNames(s.cfg.Store.KeyPrefix, secret).Identity,
		Caches: s.caches, OnError: s.journalNotWritten, OnDrop: s.journalDropped, Guard: own.Guard,
	}
	s.counts.journal = journal.New(cfg)
	return nil
}

// appendTo returns what appends entries to the streams.
func appendTo(own *redis.Client, keys keys.Names, length int) func(stream string, e *journal.Entry) error {
	return func(stream string, e *journal.Entry) error {
		key := keys.Shared(stream)
		words := []any{"XADD", key, "MAXLEN", "~", length, "*"}
		for _, field := range e.Fields() {
			words = append(words, field)
		}
		ctx, cancel := context.WithTimeout(context.Background(), journalPatience)
		defer cancel()
		_, err := own.Run(ctx, key, words...)
		return err
	}
}

// caches are the answers so far of caches, by domain. The journal itself counts remembered refusals.
func (s *Sidecar) caches() (all []journal.Cache) {
	for _, u := range s.counts.profiles.Uses() {
		all = append(all, journal.Cache{Domain: u.Domain, Name: "profiles", Hits: u.Hits, Misses: u.Misses})
	}
	for _, u := range s.counts.keys.Uses() {
		all = append(all, journal.Cache{Domain: u.Domain, Name: "tokens", Hits: int64(u.Hits), Misses: int64(u.Misses)})
	}
	return all
}

// journalNotWritten logs that an entry could not be written. It is tried again.
func (s *Sidecar) journalNotWritten(stream string, err error) {
	s.reports.log.Warn("the record cannot be written to redis; it is kept in memory as far as there is room", "stream",
		stream, "error", err)
}

// journalDropped logs what was dropped for want of room.
func (s *Sidecar) journalDropped(rows int64) {
	s.reports.log.Warn("the record is full: usage of further identities counts as (others), and events are dropped",
		"rows", rows)
}

// observeJournal is the observer that keeps decisions, if there is a Redis to write them to.
func (s *Sidecar) observeJournal(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	if s.counts.journal != nil {
		s.counts.journal.Observe(req, v)
	}
}
