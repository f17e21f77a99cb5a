package sidecar

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/audit"
	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// show is the observer for the live page: it ranks the counters, and hands refusals to those who read them.
func (s *Sidecar) show(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	if s.reports.top != nil && v.Match.Domain != nil && s.reports.top.Sampled() {
		s.rank(v)
	}
	if v.Outcome.Refuses() {
		if now := time.Now(); s.reports.feed.Wanted(now) {
			s.reports.feed.Publish(event(req, v, now))
		}
	}
}

// rank notes the counters of a decision. A block by a record has none, and is noted by whom it is about.
func (s *Sidecar) rank(v *engine.Verdict) {
	domain := v.Match.Domain.Name
	if b := v.Match.Block; b != nil && b.Account != "" {
		s.reports.top.Note(domain, b.Rule, b.Account, true)
	}
	for i := range v.Decisions {
		if i != v.Match.Gate-1 {
			s.reports.top.Note(domain, v.Match.Terms[i].Effect.Rule, v.Match.Charges[i].Key, v.Decisions[i].Outcome == limit.Refused)
		}
	}
}

// maxEntries is how many entries of descriptors an event shows.
const maxEntries = 16

// event is a refusal as readers see it. It copies what it shows of the request, whose memory is used again.
func event(req *descriptors.Request, v *engine.Verdict, now time.Time) audit.Event {
	e := audit.Event{At: now.UTC(), Domain: clone(req.Domain), Outcome: v.Outcome.String(), RetryAfter: v.RetryAfter.Seconds(), Degraded: v.Degraded}
	if v.Effect != nil {
		e.Rule = v.Effect.Rule
	}
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Refused && v.Match.Terms[i].Effect == v.Refusing {
			e.Key = v.Match.Charges[i].Key
			break
		}
	}
	if req.Subject != nil {
		e.User, e.Tenant, e.APIKey = clone(v.Client.User), clone(v.Client.Tenant), clone(v.Client.Key)
		e.Method, e.Path = clone(req.Subject.Method), clone(withoutQuery(req.Subject.Path))
		if v.Client.Address.IsValid() {
			e.Address = v.Client.Address.String()
		}
		return e
	}
	describe(&e, req.Descriptors)
	return e
}

// describe adds the descriptors of a request to an event. A part of them would be another request.
func describe(e *audit.Event, sent []descriptors.Descriptor) {
	e.Entries = map[string]string{}
	count := 0
	for _, d := range sent {
		one := audit.Descriptor{Entries: []audit.Entry{}}
		for _, entry := range d.Entries {
			if count++; count > maxEntries {
				e.Descriptors = nil
				return
			}
			key, value := clone(entry.Key), clone(entry.Value)
			e.Entries[key] = value
			one.Entries = append(one.Entries, audit.Entry{Key: key, Value: value})
		}
		e.Descriptors = append(e.Descriptors, one)
	}
}

// topOfFleet asks all sidecars for their rankings.
func (s *Sidecar) topOfFleet(ctx context.Context) ([]audit.Ranking, []string, error) {
	if s.updates.peers == nil {
		return []audit.Ranking{s.reports.top.Ranking()}, nil, nil
	}
	answers, missing, err := s.updates.peers.Ask(ctx, topicTop, nil)
	if err != nil {
		return nil, nil, err
	}
	var all []audit.Ranking
	for _, text := range answers {
		var one audit.Ranking
		if json.Unmarshal(text, &one) == nil && !one.Since.IsZero() { // a sidecar without a ranking answers null
			all = append(all, one)
		}
	}
	return all, missing, nil
}

// toldKeys is how many keys of each list a sidecar tells another one.
const toldKeys = 256

// reply answers a question of another sidecar.
func (s *Sidecar) reply(topic string, _ []byte) []byte {
	if topic != topicTop || s.reports.top == nil {
		return []byte("null")
	}
	r := s.reports.top.Ranking()
	for i, list := range []*[]audit.Ranked{&r.Asked, &r.Refused} {
		if len(*list) > toldKeys {
			r.Floor[i] = max(r.Floor[i], (*list)[toldKeys].Count)
			*list = (*list)[:toldKeys]
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return []byte("null")
	}
	return text
}

// fleetNow is every sidecar that lives; without Redis this one.
func (s *Sidecar) fleetNow(ctx context.Context) ([]admin.SidecarView, error) {
	if s.updates.peers == nil {
		self := s.card()
		self.ID, self.Self = "self", true
		return []admin.SidecarView{self}, nil
	}
	cards, err := s.updates.peers.Cards(ctx)
	if err != nil {
		return nil, err
	}
	all := []admin.SidecarView{}
	for _, c := range cards {
		one := admin.SidecarView{Domains: []string{}, Degraded: []string{}}
		if json.Unmarshal(c.Body, &one) == nil {
			one.ID, one.Self = c.ID, c.Self
			all = append(all, one)
		}
	}
	return all, nil
}

// troubles names what does not work as it should, without asking Redis.
func (s *Sidecar) troubles() []string {
	parts := append([]string{}, s.loadsDegraded()...)
	if s.counts.redis != nil && s.counts.redis.Breaker() == breaker.Open {
		parts = append(parts, "redis: breaker "+breaker.Open.String())
	}
	for _, set := range s.counts.keys.Status() {
		if set.Err != nil {
			parts = append(parts, "jwks: "+set.Source)
		}
	}
	return parts
}

// clone is a copy of a text of a client, cut where it is long.
func clone(text string) string { return strings.Clone(audit.Short(text)) }

// withoutQuery is a path without what may hold secrets.
func withoutQuery(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}
