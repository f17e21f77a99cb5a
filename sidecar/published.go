package sidecar

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/rules"
)

// publishedWithin bounds how long the documents are waited for.
const publishedWithin = time.Second

// readPublished reads the documents that are published.
func (s *Sidecar) readPublished() ([]rules.Document, error) {
	key := s.redisNames().Shared(rules.PublishedKey)
	ctx, cancel := context.WithTimeout(context.Background(), publishedWithin)
	defer cancel()
	reply, err := s.counts.redis.Client().Ask(ctx, key, "HGETALL", key)
	if err != nil {
		return nil, err
	}
	all, err := documents(reply)
	for i := range all {
		all[i] = all[i].For(s.name())
	}
	return all, err
}

// name is what chooses whether this sidecar uses canaries.
func (s *Sidecar) name() string { return cmp.Or(s.cfg.Rules.Sidecar, hostName()) }

// maxTrials is how many domains with a canary a card shows.
const maxTrials = 16

// trialsOf are the canaries of the documents in use, with what was decided in their domains so far.
func (s *Sidecar) trialsOf(published []rules.Merged) (all []admin.TrialView) {
	for i := range published {
		d := &published[i].Document
		if d.Canary == 0 || len(all) == maxTrials {
			continue
		}
		t := admin.TrialView{Domain: d.Domain, Publication: d.Publication, Version: d.Version,
			Canary: d.Version == d.Canary}
		t.Requests, t.Refused = s.reports.telemetry.Requests(d.Domain)
		all = append(all, t)
	}
	return all
}

// documents reads the reply about the documents: the name of a domain and its document, one after the other.
func documents(reply any) (all []rules.Document, err error) {
	items, is := reply.([]any)
	if !is || len(items)%2 != 0 {
		return nil, errors.New("the reply must be a list of pairs")
	}
	for pair := range slices.Chunk(items, 2) {
		var d rules.Document
		domain, _ := pair[0].(string)
		text, _ := pair[1].(string)
		err = json.Unmarshal([]byte(text), &d)
		if err == nil && d.Domain != domain {
			err = fmt.Errorf("it is about the domain %q", d.Domain)
		}
		if err != nil {
			return nil, fmt.Errorf("the document of the domain %.100q cannot be read: %w", domain, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// keysOf returns what looks up API keys of a domain that no rule file has.
func (s *Sidecar) keysOf(domain string) func(ctx context.Context, digest [32]byte) (identity.Key, bool) {
	return func(ctx context.Context, digest [32]byte) (identity.Key, bool) {
		if !s.counts.profiles.Kinds(domain).Has(profiles.Secret) {
			return identity.Key{}, false
		}
		id := profiles.Identity{Domain: domain, Kind: profiles.Secret, Name: hex.EncodeToString(digest[:])}
		value, fresh := s.counts.profiles.Cached(&id)
		if !fresh {
			value = s.counts.profiles.Ask(ctx, []profiles.Identity{id})[0]
		}
		key, known := value.(*identity.Key)
		if !known || key == nil {
			return identity.Key{}, false
		}
		return *key, true
	}
}

// prepareKey is the API key of a profile in the terms of package identity.
func prepareKey(r *profiles.Profile) any {
	if r.Key == nil {
		return nil
	}
	return &identity.Key{ID: r.Key.ID, User: r.Key.User, Tier: r.Key.Tier, Expires: r.Key.Expires,
		Revoked: r.Key.Revoked}
}
