package sidecar

import (
	"context"
	"encoding/json"

	"github.com/spillway-mesh/spillway/admin/live"
)

// hidden is a text with identities on its way through Redis.
type hidden struct {
	Hidden []byte `json:"hidden"`
}

// decision finds a decision by its id: here, else at the sidecars that share the store.
func (s *Sidecar) decision(ctx context.Context, id string) (found *live.Decision, missing []string, err error) {
	if s.reports.recent != nil {
		if d, here := s.reports.recent.Find(id); here {
			return &d, nil, nil
		}
	}
	if s.updates.peers == nil {
		return nil, nil, nil
	}
	answers, missing, err := s.updates.peers.Ask(ctx, topicDecided, hidden{s.redisNames().Hide([]byte(id))})
	if err != nil {
		return nil, nil, err
	}
	for _, text := range answers {
		var one hidden
		if json.Unmarshal(text, &one) != nil || len(one.Hidden) == 0 {
			continue
		}
		d := new(live.Decision)
		if shown, err := s.redisNames().Show(one.Hidden); err == nil && json.Unmarshal(shown, d) == nil {
			return d, nil, nil
		}
	}
	return nil, missing, nil
}

// replyDecision answers another sidecar with a decision, or null.
func (s *Sidecar) replyDecision(question []byte) []byte {
	none := []byte("null")
	var asked hidden
	if s.reports.recent == nil || json.Unmarshal(question, &asked) != nil {
		return none
	}
	id, err := s.redisNames().Show(asked.Hidden)
	if err != nil {
		return none
	}
	d, here := s.reports.recent.Find(string(id))
	if !here {
		return none
	}
	text, err := json.Marshal(d)
	if err == nil {
		text, err = json.Marshal(hidden{s.redisNames().Hide(text)})
	}
	if err != nil {
		return none
	}
	return text
}
