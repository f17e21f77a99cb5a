package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/admin/live"
)

// topOfAll asks all sidecars for their rankings. While Redis does not answer it has that of this sidecar.
func (s *Sidecar) topOfAll(ctx context.Context) (all []live.Ranking, missing []string, unknown string) {
	if s.updates.peers == nil {
		return []live.Ranking{s.reports.top.Ranking()}, nil, ""
	}
	answers, missing, err := s.updates.peers.Ask(ctx, topicTop, nil)
	if err != nil {
		for _, c := range s.updates.peers.Known() {
			if !c.Self {
				missing = append(missing, c.ID)
			}
		}
		unknown = fmt.Sprintf("what other sidecars were asked for: %v", err)
		return []live.Ranking{s.reports.top.Ranking()}, missing, unknown
	}
	for _, text := range answers {
		var one live.Ranking
		if json.Unmarshal(text, &one) == nil && !one.Since.IsZero() { // a sidecar without a ranking answers null
			all = append(all, one)
		}
	}
	return all, missing, ""
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

// sidecarsNow is every sidecar that lives; without Redis this one. While Redis does not answer the others are as they
// were last read.
func (s *Sidecar) sidecarsNow(ctx context.Context) (all []admin.SidecarView, unknown string) {
	self := s.card(s.degraded())
	self.ID, self.Self = "self", true
	if s.updates.peers == nil {
		return []admin.SidecarView{self}, ""
	}
	self.ID = s.updates.peers.ID()
	all = append(all, self)
	cards, err := s.updates.peers.Cards(ctx)
	if err != nil {
		cards = s.updates.peers.Known()
		unknown = fmt.Sprintf("how other sidecars are now, and which have started or ended meanwhile: %v", err)
	}
	for _, c := range cards {
		one := admin.SidecarView{Domains: []string{}, Degraded: []string{}}
		if c.Self || json.Unmarshal(c.Body, &one) != nil {
			continue
		}
		one.ID, one.NotHeardFor = c.ID, 0
		if err != nil {
			one.NotHeardFor = time.Since(c.Read).Seconds()
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b admin.SidecarView) int { return strings.Compare(a.ID, b.ID) })
	return all, unknown
}

// troubles names what does not work as it should, without asking Redis.
func (s *Sidecar) troubles() []string {
	if s.counts.redis == nil {
		return s.degradedBy("")
	}
	return s.degradedBy(s.storeAway(func(context.Context) string { return "" }))
}
