package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/redis/peers"
)

// The topics of what sidecars announce to each other.
const (
	topicProfile = peers.TopicProfile
	topicCounter = "counter" // an operator's change touches the counters of some keys
	topicReset   = "reset"   // some keys, of counters or penalties, were made full
	topicTop     = "top"     // what the sketches hold
	topicDecided = "decided" // a decision that is looked up
	topicRules   = peers.TopicRules
)

// openProfiles makes the book of profiles, in Redis or, without one, in this process.
func (s *Sidecar) openProfiles() {
	cfg := profiles.Config{Prepare: prepareProfile, Bytes: s.counts.budget.profiles, Patience: s.cfg.Store.Patience,
		OnError: s.profilesFailed}
	if s.counts.redis == nil {
		s.counts.profiles = profiles.New(cfg)
		return
	}
	keys := s.redisNames()
	cfg.Redis = s.counts.redis.Client()
	cfg.Key = func(id *profiles.Identity) string { return keys.Profile(id.Domain, id.Kind.String(), id.Text()) }
	cfg.Index, cfg.Claims, cfg.Serves = keys.Shared("index"), keys.Shared("claims"), s.hasRules
	cfg.Publish = func(ctx context.Context, key, class string) error {
		return s.updates.peers.Send(ctx, topicProfile, peers.ChangedProfile{Key: key, Class: class})
	}
	cfg.Missing = func(ctx context.Context, ids []profiles.Identity) error {
		return askForProfiles(ctx, cfg.Redis, keys, ids)
	}
	cfg.Taken = func(ctx context.Context, id profiles.Identity) error { return noteTaken(ctx, cfg.Redis, keys, &id) }
	s.counts.profiles = profiles.New(cfg)
}

// hasRules reports whether there are rules for a domain, or no rules at all yet.
func (s *Sidecar) hasRules(domain string) bool {
	rules := s.updates.inUse.Load()
	return rules == nil || rules.set.Domain(domain) != nil
}

// askForProfiles asks the control plane to put profiles back before others.
func askForProfiles(ctx context.Context, c *redis.Client, keys keys.Names, ids []profiles.Identity) error {
	var all []peers.MissingProfile
	for i := range ids {
		all = append(all, peers.MissingProfile{Domain: ids[i].Domain, Kind: ids[i].Kind.String(), Name: ids[i].Text()})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("ask for profiles: %w", err)
	}
	return peers.Announce(ctx, c, keys.Shared("missing"), peers.TopicMissing,
		peers.MissingProfiles{Hidden: keys.Hide(text)})
}

// maxTaken is how many identities of a domain wait at most for a control that takes them over. The oldest go.
const maxTaken = 100_000

// noteTaken notes that an operator has changed the block of an identity, for a control to take over.
func noteTaken(ctx context.Context, c *redis.Client, keys keys.Names, id *profiles.Identity) error {
	text, err := json.Marshal(peers.MissingProfile{Domain: id.Domain, Kind: id.Kind.String(), Name: id.Text()})
	key := keys.Shared(profiles.TakenKey(id.Domain))
	if err == nil {
		_, err = c.Run(ctx, key, "ZADD", key, time.Now().UnixMicro(), keys.Hide(text))
	}
	if err == nil {
		_, err = c.Run(ctx, key, "ZREMRANGEBYRANK", key, 0, -maxTaken-1)
	}
	if err != nil {
		return fmt.Errorf("the profile is changed, and a control may not learn of it: try again: %w", err)
	}
	return nil
}

// redisNames makes the keys of what is kept beside the counters.
func (s *Sidecar) redisNames() keys.Names {
	return keys.NewNames(s.cfg.Store.KeyPrefix, []byte(s.cfg.Store.KeySecret))
}

// openPeers subscribes to what other sidecars announce.
func (s *Sidecar) openPeers() {
	shared, keys := s.counts.redis, s.redisNames()
	s.updates.peers = peers.New(peers.Config{
		Redis: shared.Client(), Channel: keys.Shared("news"), Cards: keys.Shared("cards"),
		Answers: func(question string) string { return keys.Shared("answers:" + question) },
		Card:    func() any { return s.card(s.troubles()) },
		Gap:     func() { s.counts.profiles.Outdate(); s.lookForRules() },
		Reply:   s.reply,
		Topics: map[string]func([]byte){
			topicProfile: s.hearProfile, topicRules: func([]byte) { s.lookForRules() },
			topicCounter: hearKeys(shared.Drop),
			topicReset:   hearKeys(func(keys []string) { s.counts.engine.Forget(context.Background(), keys) }),
		},
		OnError: func(err error) { s.reports.log.Debug("the other sidecars", "error", err) },
	})
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
	if s.updates.files != nil {
		s.updates.files.Look()
	}
}

// hearProfile takes in that a profile has changed.
func (s *Sidecar) hearProfile(body []byte) {
	var changed peers.ChangedProfile
	if json.Unmarshal(body, &changed) == nil {
		s.counts.profiles.Forget(changed.Key, changed.Class)
	}
}

// profilesFailed logs that profiles could not be had. That Redis is away shows in the decisions.
func (s *Sidecar) profilesFailed(reason string, err error) {
	if reason == redis.ReasonBreaker {
		return
	}
	s.reports.log.Warn("profiles cannot be had; what is known of them holds, and the rules",
		"reason", reason, "error", err)
}

// forgetCounters makes all sidecars forget what they know of counters that an operator has changed.
func (s *Sidecar) forgetCounters(ctx context.Context, touched, reset []string) error {
	if s.updates.peers == nil {
		return nil
	}
	return errors.Join(s.updates.peers.Send(ctx, topicReset, reset), s.updates.peers.Send(ctx, topicCounter, touched))
}

// prepareProfile is a profile in the terms of the rules. A limit that cannot be read, or is one too many, is left out:
// both were checked before it was written.
func prepareProfile(id *profiles.Identity, r *profiles.Profile) any {
	if id.Kind == profiles.Secret {
		return prepareKey(r)
	}
	kind, _ := identity.ParseKind(id.Kind.String())
	d := &descriptors.Profile{ID: identity.ID{Kind: kind, Name: id.Text()}, Tier: r.Tier}
	if r.Block != nil {
		d.Blocked, d.Lifted, d.Reason, d.Until = !r.Block.Lifted, r.Block.Lifted, r.Block.Reason, r.Block.Until
	}
	for _, l := range r.Limits[:min(len(r.Limits), profiles.MaxLimits)] {
		if one, err := l.Compile(); err == nil {
			d.Limits = append(d.Limits, one)
		}
	}
	return d
}
