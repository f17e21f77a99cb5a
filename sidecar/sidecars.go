package sidecar

import (
	"context"
	"encoding/json"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/redis"
)

// topOfAll asks all sidecars for their rankings.
func (s *Sidecar) topOfAll(ctx context.Context) ([]live.Ranking, []string, error) {
	if s.updates.peers == nil {
		return []live.Ranking{s.reports.top.Ranking()}, nil, nil
	}
	answers, missing, err := s.updates.peers.Ask(ctx, topicTop, nil)
	if err != nil {
		return nil, nil, err
	}
	var all []live.Ranking
	for _, text := range answers {
		var one live.Ranking
		if json.Unmarshal(text, &one) == nil && !one.Since.IsZero() { // a sidecar without a ranking answers null
			all = append(all, one)
		}
	}
	return all, missing, nil
}

// sentKeys is how many keys of each list a sidecar sends another one.
const sentKeys = 256

// reply answers a question of another sidecar.
func (s *Sidecar) reply(topic string, body []byte) []byte {
	if topic == topicDecided {
		return s.replyDecision(body)
	}
	if topic != topicTop || s.reports.top == nil {
		return []byte("null")
	}
	r := s.reports.top.Ranking()
	for i, list := range []*[]live.Ranked{&r.Asked, &r.Refused} {
		if len(*list) > sentKeys {
			r.Floor[i] = max(r.Floor[i], (*list)[sentKeys].Count)
			*list = (*list)[:sentKeys]
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return []byte("null")
	}
	return text
}

// sidecarsNow is every sidecar that lives; without Redis this one.
func (s *Sidecar) sidecarsNow(ctx context.Context) ([]admin.SidecarView, error) {
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
	if s.counts.redis != nil && s.counts.redis.Breaker() == redis.BreakerOpen {
		parts = append(parts, "redis: breaker open")
	}
	for _, set := range s.counts.keys.Status() {
		if set.Err != nil {
			parts = append(parts, "jwks: "+set.Source)
		}
	}
	return parts
}
