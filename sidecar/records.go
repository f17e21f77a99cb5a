package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/peers"
	"github.com/spillway-mesh/spillway/records"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store"
)

// The topics of what sidecars tell each other.
const (
	topicRecord  = peers.TopicRecord
	topicCounter = "counter" // an operator's change touches the counters of some keys
	topicReset   = "reset"   // some keys, of counters or penalties, were made full
	topicTop     = "top"     // what the sketches hold
	topicRules   = peers.TopicRules
)

// openRecords makes the book of records, in Redis or, where shared is nil, in this process.
func (s *Sidecar) openRecords(shared *store.Redis) {
	cfg := records.Config{Prepare: prepareRecord, Bytes: s.budget.records, Patience: s.cfg.Store.Patience, OnError: s.recordFailed}
	if shared == nil {
		s.records = records.New(cfg)
		return
	}
	keys := s.recordKeys()
	cfg.Redis = shared.Client()
	cfg.Key = func(id *records.Identity) string { return keys.RecordKey(id.Domain, id.Kind.String(), id.Text()) }
	cfg.Index, cfg.Serves = keys.Shared("index"), s.hasRules
	cfg.Publish = func(ctx context.Context, key, class string) error {
		return s.peers.Tell(ctx, topicRecord, peers.ChangedRecord{Key: key, Class: class})
	}
	cfg.Missing = func(ctx context.Context, ids []records.Identity) error {
		return askForRecords(ctx, cfg.Redis, keys, ids)
	}
	s.records = records.New(cfg)
	s.telemetry.Records(s.records.Stats)
	s.defers("records", s.records.Close)
}

// hasRules reports whether there are rules for a domain, or no rules at all yet.
func (s *Sidecar) hasRules(domain string) bool {
	rules := s.inUse.Load()
	return rules == nil || rules.set.Domain(domain) != nil
}

// askForRecords asks the control plane to put records back before others.
func askForRecords(ctx context.Context, c *redis.Client, keys descriptors.RecordKeys, ids []records.Identity) error {
	var all []peers.MissingRecord
	for i := range ids {
		all = append(all, peers.MissingRecord{Domain: ids[i].Domain, Kind: ids[i].Kind.String(), Name: ids[i].Text()})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("ask for records: %w", err)
	}
	return peers.Announce(ctx, c, keys.Shared("missing"), peers.TopicMissing, peers.MissingRecords{Hidden: keys.Hide(text)})
}

// recordKeys makes the keys of what is kept beside the counters.
func (s *Sidecar) recordKeys() descriptors.RecordKeys {
	return descriptors.NewRecordKeys(s.cfg.Store.KeyPrefix, []byte(s.cfg.Store.KeySecret))
}

// openPeers begins to hear what other sidecars tell, if there is a store that they share.
func (s *Sidecar) openPeers(shared *store.Redis) {
	if shared == nil {
		return
	}
	keys := s.recordKeys()
	s.peers = peers.New(peers.Config{
		Redis: shared.Client(), Channel: keys.Shared("news"), Cards: keys.Shared("cards"),
		Answers: func(question string) string { return keys.Shared("answers:" + question) },
		Card:    func() any { return s.card() }, Gap: func() { s.records.Outdate(); s.lookForRules() }, Reply: s.reply,
		Topics: map[string]func([]byte){
			topicRecord: s.hearRecord, topicRules: func([]byte) { s.lookForRules() }, topicCounter: hearKeys(shared.Drop),
			topicReset: hearKeys(func(keys []string) { s.engine.Forget(context.Background(), keys) }),
		},
		OnError: func(err error) { s.log.Debug("the other sidecars", "error", err) },
	})
	s.defers("peers", s.peers.Close)
}

// hearKeys makes a reader of news about keys.
func hearKeys(take func(keys []string)) func(body []byte) {
	return func(body []byte) {
		var keys []string
		if json.Unmarshal(body, &keys) == nil {
			take(keys)
		}
	}
}

// lookForRules looks for changed rules now, where there are files or published rules beside a management server.
func (s *Sidecar) lookForRules() {
	if s.files != nil {
		s.files.Look()
	}
}

// hearRecord takes in that a record has changed.
func (s *Sidecar) hearRecord(body []byte) {
	var changed peers.ChangedRecord
	if json.Unmarshal(body, &changed) == nil {
		s.records.Forget(changed.Key, changed.Class)
	}
}

// recordFailed logs that records could not be had. That Redis is away shows in the decisions.
func (s *Sidecar) recordFailed(reason string, err error) {
	if reason == redis.ReasonBreaker {
		return
	}
	s.log.Warn("records cannot be had ("+reason+"); what is known of them holds, and the rules", "error", err)
}

// forgetCounters makes all sidecars forget what they know of counters that an operator has changed.
func (s *Sidecar) forgetCounters(ctx context.Context, touched, reset []string) error {
	if s.peers == nil {
		return nil
	}
	return errors.Join(s.peers.Tell(ctx, topicReset, reset), s.peers.Tell(ctx, topicCounter, touched))
}

// prepareRecord is a record in the terms of the rules. A limit that cannot be read, or is one too many, is left out:
// both were checked before it was written.
func prepareRecord(id *records.Identity, r *records.Record) any {
	if id.Kind == records.Secret {
		return prepareKey(r)
	}
	d := &descriptors.Record{Kind: id.Kind.String(), Name: id.Text(), Tier: r.Tier}
	if r.Block != nil {
		d.Blocked, d.Lifted, d.Reason, d.Until = !r.Block.Lifted, r.Block.Lifted, r.Block.Reason, r.Block.Until
	}
	for _, l := range r.Limits[:min(len(r.Limits), admin.MaxLimits)] {
		if one, err := limitOf(l); err == nil {
			d.Limits = append(d.Limits, one)
		}
	}
	return d
}

// limitOf is a limit of a record in the terms of the rules.
func limitOf(l records.Limit) (descriptors.Limit, error) {
	if l.Unlimited {
		return descriptors.Limit{Unlimited: true, Limit: limit.Limit{Name: l.Name}}, nil
	}
	if l.Month {
		return monthly(l)
	}
	algorithm, _ := limit.ParseAlgorithm(l.Algorithm) // an unknown one does not pass the check
	one := descriptors.Limit{Limit: limit.Limit{Name: l.Name, Count: l.Count, Window: l.Per, Burst: l.Burst, Algorithm: algorithm}}
	err := one.Validate()
	if err != nil {
		return one, fmt.Errorf("limit of a record: %w", err)
	}
	return one, nil
}

// monthly is a limit of a record whose windows are the months of a calendar.
func monthly(l records.Limit) (descriptors.Limit, error) {
	one := descriptors.Limit{Limit: limit.Limit{Name: l.Name, Count: l.Count, Algorithm: limit.FixedWindow}, CalendarUnit: descriptors.CalendarMonth}
	one.Window = one.CalendarUnit.Length()
	err := one.Validate()
	if err != nil {
		return one, fmt.Errorf("limit of a record: %w", err)
	}
	return one, nil
}

// known is the book of records as the engine asks it.
type known struct{ *records.Book }

// Any reports whether there are records in a domain.
func (k known) Any(domain string) bool { return k.Kinds(domain) != nil }

// lookup is the identities of one request that are looked up.
type lookup struct {
	book *records.Book
	cold []records.Identity // that are not cached
	to   []**descriptors.Record
}

// Look fills in the records of those who ask. Those that are not cached are asked for together.
func (k known) Look(ctx context.Context, domain string, who *descriptors.Who, found *descriptors.Records) bool {
	kinds := k.Kinds(domain)
	l := lookup{book: k.Book}
	l.name(kinds, records.Identity{Domain: domain, Kind: records.Tenant, Name: who.Tenant}, &found.Tenant)
	l.name(kinds, records.Identity{Domain: domain, Kind: records.User, Name: who.User}, &found.User)
	l.name(kinds, records.Identity{Domain: domain, Kind: records.APIKey, Name: who.APIKey}, &found.APIKey)
	if kinds.Has(records.Network) && who.Address.IsValid() {
		for _, bits := range kinds.Lengths(who.Address.Addr()) {
			if bits <= who.Address.Bits() {
				network := netip.PrefixFrom(who.Address.Addr(), bits).Masked()
				l.find(records.Identity{Domain: domain, Kind: records.Network, Network: network}, &found.Address)
			}
		}
	}
	if len(l.cold) > 0 {
		for i, value := range k.Ask(ctx, l.cold) {
			take(value, l.to[i])
		}
	}
	return *found != descriptors.Records{}
}

// name looks up an identity that has a name.
func (l *lookup) name(kinds *records.Kinds, id records.Identity, to **descriptors.Record) {
	if id.Name != "" && kinds.Has(id.Kind) {
		l.find(id, to)
	}
}

// find takes what is cached about an identity, or notes that it has to be asked for.
func (l *lookup) find(id records.Identity, to **descriptors.Record) {
	value, fresh := l.book.Cached(&id)
	if fresh {
		take(value, to)
		return
	}
	l.cold, l.to = append(l.cold, id), append(l.to, to)
}

// take fills in a record. Of several networks that hold an address, the smallest that has a record counts; a block of any of them holds, as long
// as it lasts.
func take(value any, to **descriptors.Record) {
	r, is := value.(*descriptors.Record)
	if is && (*to == nil || goesBefore(r, *to, time.Now())) {
		*to = r
	}
}

// goesBefore reports whether a record counts in place of another one of the same request.
func goesBefore(r, other *descriptors.Record, now time.Time) bool {
	blocks := func(r *descriptors.Record) bool { return r.Blocked && (r.Until.IsZero() || now.Before(r.Until)) }
	if blocks(r) != blocks(other) {
		return blocks(r)
	}
	return bitsOf(r) > bitsOf(other)
}

// bitsOf is the length of the network that a record is about: an address has the longest.
func bitsOf(r *descriptors.Record) int {
	network, err := netip.ParsePrefix(r.Name)
	if err != nil {
		return 128
	}
	return network.Bits()
}
