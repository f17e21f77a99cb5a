package sidecar

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// Bounds of the writing of the record. It has a connection and patience of its own, so that decisions do not wait for
// it.
const (
	recordPatience = 2 * time.Second
	recordEnd      = 2 * time.Second // for what is left when the sidecar stops
)

// openRecord starts the record, if there is to be one.
func (s *Sidecar) openRecord() error {
	if !s.cfg.Record.Use || s.counts.redis == nil {
		return nil
	}
	servers, err := serversOf(s.cfg.Redises()[0], s.cfg.RedisTLS, s.reports.log, s.reports.secrets.AddRecent)
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
		Region: s.cfg.Record.Region, AllowedIn: uint32(s.cfg.Record.AllowedOneIn), Patience: recordEnd,
		Append: appendTo(own, s.recordKeys(), s.cfg.Record.Length),
		Name:   descriptors.NewRecordKeys(s.cfg.Store.KeyPrefix, secret).Identity,
		Caches: s.caches, OnError: s.recordNotWritten, OnDrop: s.recordDropped, Guard: own.Guard,
	}
	for o := range engine.Outcomes {
		cfg.Outcomes = append(cfg.Outcomes, o.String())
	}
	s.counts.journal = journal.New(cfg)
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

// caches are the answers of the caches so far.
func (s *Sidecar) caches() []journal.Cache {
	counters, known, tokens := s.counts.redis.Stats(), s.counts.records.Stats(), s.counts.keys.Stats()
	return []journal.Cache{
		{Name: "denials", Hits: counters.Denials.Hits, Misses: counters.Denials.Misses},
		{Name: "records", Hits: known.Hits, Misses: known.Misses},
		{Name: "tokens", Hits: int64(tokens.Hits), Misses: int64(tokens.Misses)},
	}
}

// recordNotWritten logs that an entry could not be written. It is tried again.
func (s *Sidecar) recordNotWritten(stream string, err error) {
	s.reports.log.Warn("the record cannot be written to redis; it is kept in memory as far as there is room", "stream",
		stream, "error", err)
}

// recordDropped logs what was dropped for want of room.
func (s *Sidecar) recordDropped(rows int64) {
	s.reports.log.Warn("the record is full: usage of further identities counts as (others), and events are dropped",
		"rows", rows)
}

// record is the observer that keeps decisions, if there is a Redis to write them to.
func (s *Sidecar) record(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	if s.counts.journal == nil {
		return
	}
	d := journal.Decided{At: v.Began, Domain: req.Domain, Outcome: uint8(v.Outcome), Latency: max(v.Took-v.Waited, 0)}
	var rules [maxNoted]journal.Charged
	d.Requests, d.Cost, d.Rules = charges(req, v, rules[:0])
	if d.Requests == 0 && d.Cost == 0 {
		return // hits were given back
	}
	if v.Effect != nil {
		d.Rule = v.Effect.Rule
	}
	asked := v.Attributes()
	d.Endpoint = asked.Endpoint
	if d.Requests > 0 {
		d.Weight = s.counts.journal.Weight(v.Outcome.Refuses())
	}
	d.Kind, d.Identity = who(asked)
	d.Key, d.Refused = asked.APIKey, turnsAway(v.Outcome)
	var address [64]byte
	if d.Weight > 0 || d.Kind == journal.Address {
		d.IP = string(appendAddress(address[:0], asked))
	}
	if d.Kind == journal.Address {
		d.Identity = d.IP
	}
	if d.Weight > 0 {
		d.Status, d.RetryAfter, d.Method, d.APIKey = v.HTTPStatus, v.RetryAfter, asked.Method, shownKey(req, v, asked)
		d.Count, d.Limit = decider(v, v.Effect)
	}
	s.counts.journal.Note(&d)
}

// turnsAway reports whether a request did not pass.
func turnsAway(o engine.Outcome) bool { return o.Refuses() && o != engine.Shadowed }

// maxNoted is how many rules of one request cost no memory.
const maxNoted = 4

// who returns the first identity that is known. That of an address is not made yet.
func who(a *descriptors.Asked) (journal.Kind, string) {
	switch {
	case a.User != "":
		return journal.User, a.User
	case a.APIKey != "":
		return journal.APIKey, a.APIKey
	case a.Tenant != "":
		return journal.Tenant, a.Tenant
	case a.Address.IsValid() || a.AddressText != "":
		return journal.Address, ""
	}
	return journal.NoKind, ""
}

// appendAddress appends the text of an address, or of a network where the mesh masks it.
func appendAddress(b []byte, a *descriptors.Asked) []byte {
	switch {
	case !a.Address.IsValid():
		return append(b, a.AddressText...)
	case a.Address.IsSingleIP():
		return a.Address.Addr().AppendTo(b)
	}
	return a.Address.AppendTo(b)
}

// shownKey returns what events show of an API key. Over ext_authz it is the beginning of the key, or its id where the
// key is short. Over the rate limit service the mesh may send the key itself or its id: at most a third of it is shown.
func shownKey(req *descriptors.Request, v *engine.Verdict, a *descriptors.Asked) string {
	switch {
	case a.APIKey == "":
		return ""
	case req.Subject == nil && identity.KeyPrefix(a.APIKey) == "":
		return a.APIKey[:len(a.APIKey)/3]
	case req.Subject == nil:
		return identity.KeyPrefix(a.APIKey)
	case v.Client.KeyPrefix != "":
		return v.Client.KeyPrefix
	}
	return a.APIKey
}

// decider returns what the counter of the limit that decided holds, and what it may hold.
func decider(v *engine.Verdict, effect *descriptors.Effect) (count, most int64) {
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if v.Match.Terms[i].Effect == effect && i != v.Match.Gate-1 && d.Remaining >= 0 {
			most = v.Match.Charges[i].Limit.Capacity()
			return max(most-d.Remaining, 0), most
		}
	}
	return 0, 0
}

// charges returns whether a request asked for admission (1), what it cost as a whole, and what each rule was charged,
// in the memory of rules. A cost that is known only after the request counts when it is reported, and what was taken in
// advance does not.
func charges(req *descriptors.Request, v *engine.Verdict, rules []journal.Charged) (requests, cost int64,
	_ []journal.Charged) {
	reports, admits, shown := false, false,
		false // the cost of an earlier request; asks for admission; a charge is not in shadow
	for i := range v.Decisions {
		if i == v.Match.Gate-1 {
			continue
		}
		t, c := &v.Match.Terms[i], &v.Match.Charges[i]
		asked, taken := costOf(t, c, &v.Decisions[i])
		later := c.Op == limit.Debit || c.Op == limit.Refund
		reports, admits = reports || later, admits || !later
		if c.Mode != limit.Shadow {
			shown, cost = true, max(cost, asked)
		}
		rules = charge(rules, t.Effect.Rule, taken)
	}
	if reports && !admits {
		return 0, cost, rules
	}
	if !shown {
		cost = int64(min(max(req.Hits, 1), limit.MaxCost))
	}
	return 1, cost, chargeless(v, rules)
}

// chargeless adds the rules that applied to a request and charge nothing.
func chargeless(v *engine.Verdict, rules []journal.Charged) []journal.Charged {
	for i := range v.Match.Unlimited {
		rules = charge(rules, v.Match.Unlimited[i].Effect.Rule, 0)
	}
	if v.Match.Block != nil || v.Match.Exempt != nil {
		rules = charge(rules, v.Effect.Rule, 0)
	}
	return rules
}

// costOf returns what a charge asks for, and what was taken for it.
func costOf(t *descriptors.Term, c *limit.Charge, d *limit.Decision) (asked, taken int64) {
	switch {
	case c.Op == limit.Peek, c.Op == limit.Spend && t.Effect.Reserve > 0:
		return 0, 0
	case c.Op == limit.Refund && t.Settled == 0:
		return 0, 0
	case c.Op == limit.Refund:
		return t.Settled - c.Cost, max(t.Settled-c.Cost, 0)
	}
	return c.Cost + t.Settled, max(d.Charged+t.Settled, 0)
}

// charge adds what a rule was charged. Of several limits of a rule the largest counts.
func charge(rules []journal.Charged, rule string, cost int64) []journal.Charged {
	if rule == "" {
		return rules
	}
	for i := range rules {
		if rules[i].Rule == rule {
			rules[i].Cost = max(rules[i].Cost, cost)
			return rules
		}
	}
	return append(rules, journal.Charged{Rule: rule, Cost: cost})
}
