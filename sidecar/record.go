package sidecar

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store"
)

// Bounds of the writing of the record. It has a connection and patience of its own, so that decisions do not wait for it.
const (
	recordPatience = 2 * time.Second
	recordEnd      = 2 * time.Second // for what is left when the sidecar stops
)

// openRecord starts the record, if there is to be one.
func (s *Sidecar) openRecord(shared *store.Redis) error {
	if !s.cfg.Record.Use || shared == nil {
		return nil
	}
	servers, err := serversOf(s.cfg.Redises()[0], s.cfg.RedisTLS, s.log, s.secrets.AddRecent)
	if err != nil {
		return fmt.Errorf("set up Redis for the record: %w", err)
	}
	servers.Dial = s.world.Dial
	own := redis.New(redis.Config{Servers: servers, Prefix: "record ", OnPanic: s.observer.Survived})
	s.defers("connection of the record", func() error { own.Close(); return nil })
	secret := []byte(s.cfg.Store.KeySecret)
	if s.cfg.Record.Plain {
		secret = nil
	}
	cfg := journal.Config{
		Region: s.cfg.Record.Region, AllowedIn: uint32(s.cfg.Record.AllowedOneIn), Patience: recordEnd,
		Append: appendTo(own, s.recordKeys(), s.cfg.Record.Length), Name: descriptors.NewRecordKeys(s.cfg.Store.KeyPrefix, secret).Identity,
		Caches: s.caches(shared), OnError: s.recordNotWritten, OnDrop: s.recordDropped, Guard: own.Guard,
	}
	s.journal = journal.New(cfg)
	s.telemetry.Record(s.journal.Stats)
	s.defers("record", s.closeRecord)
	return nil
}

// appendTo returns what appends entries to the streams.
func appendTo(own *redis.Client, keys descriptors.RecordKeys, length int) func(stream string, e *journal.Entry) error {
	return func(stream string, e *journal.Entry) error {
		key := keys.Shared(stream)
		words := []any{"XADD", key, "MAXLEN", "~", length, "*"}
		for _, field := range e.Fields() {
			words = append(words, field)
		}
		ctx, cancel := context.WithTimeout(context.Background(), recordPatience)
		defer cancel()
		_, err := own.Run(ctx, key, words...)
		return err
	}
}

// caches returns what counts the answers of the caches.
func (s *Sidecar) caches(shared *store.Redis) func() []journal.Cache {
	return func() []journal.Cache {
		counters, known, tokens := shared.Stats(), s.records.Stats(), s.keys.Stats()
		return []journal.Cache{
			{Name: "denials", Hits: counters.Denials.Hits, Misses: counters.Denials.Misses},
			{Name: "records", Hits: known.Hits, Misses: known.Misses},
			{Name: "tokens", Hits: int64(tokens.Hits), Misses: int64(tokens.Misses)},
		}
	}
}

// recordNotWritten logs that an entry could not be written. It is tried again.
func (s *Sidecar) recordNotWritten(stream string, err error) {
	s.log.Warn("the record cannot be written to redis; it is kept in memory as far as there is room", "stream", stream, "error", err)
}

// recordDropped logs what had no room.
func (s *Sidecar) recordDropped(rows int64) {
	s.log.Warn("the record has no room for all that is decided: usage is counted as that of (others), and events are dropped", "rows", rows)
}

// closeRecord writes what is left of the record.
func (s *Sidecar) closeRecord() error {
	if lost := s.journal.Close(); lost > 0 {
		return fmt.Errorf("%d rows of usage and events could not be written to redis, and are lost", lost)
	}
	return nil
}

// record is the observer that takes down decisions, if there is a Redis to write them to.
func (s *Sidecar) record(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	if s.journal != nil {
		s.journal.Observe(req, v)
	}
}
