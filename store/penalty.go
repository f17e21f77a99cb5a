package store

import (
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// record is a refusal on its way to the penalty of its rule.
type record struct {
	charge  *limit.Charge
	pending redis.Pending
}

// punish records the refusals by rules with a penalty, each penalty once, by a second call, and enters the cool-downs
// that they start. A refusal whose second call is lost does not count.
func (q *question) punish() {
	var records []*record
	for i := range q.request.Charges {
		c := &q.request.Charges[i]
		if c.Penalty == nil || !c.Punishes(q.request.Decisions[i]) ||
			slices.ContainsFunc(records, func(r *record) bool { return r.charge.PenaltyKey == c.PenaltyKey }) {
			continue
		}
		sent := &record{c, redis.Pending{
			Script: scripts[limit.Punish], Keys: limit.PunishKeys(c), Arguments: limit.PunishArguments(c),
			Charges: 1, Replies: 1, Due: q.due, Keep: true,
		}}
		records = append(records, sent)
		q.store.homeOf(c).server.Do(&sent.pending)
	}
	for _, sent := range records {
		q.coolDown(sent.charge.PenaltyKey, q.store.punished(sent, q.timer))
	}
}

// punished waits for the rest of a cool-down, in µs; 0: none runs, or it is not known.
func (r *Redis) punished(sent *record, timer *time.Timer) (rest int64) {
	p := &sent.pending
	if !wait(p, p.Due, timer) && p.Leave() {
		return 0
	}
	if redis.Reason(p.Err) == redis.ReasonWrong {
		r.noteForeign(sent.charge, true)
	}
	if p.Err != nil || len(p.Reply) < 2 {
		return 0
	}
	return p.Reply[1]
}

// coolDown enters a cool-down into the refusals of its rule.
func (q *question) coolDown(penaltyKey string, rest int64) {
	for i := range q.request.Charges {
		c, d := &q.request.Charges[i], &q.request.Decisions[i]
		if rest > 0 && c.Penalty != nil && c.PenaltyKey == penaltyKey && d.Outcome == limit.Refused {
			d.Punished(c, rest)
		}
	}
}
