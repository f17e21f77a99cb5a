package store

import (
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// punish records the refusals of rules with a penalty by a second call, each penalty once, and enters the cool-downs that they start. A
// refusal whose second call is lost does not count.
func (q *question) punish() {
	type record struct {
		charge  *limit.Charge
		pending *redis.Pending
	}
	var records []record
	charges, decisions := q.request.Charges, q.request.Decisions
	for i := range charges {
		c := &charges[i]
		if c.Penalty == nil || !c.Punishes(decisions[i]) {
			continue
		}
		known := false
		for _, other := range records {
			known = known || other.charge.PenaltyKey == c.PenaltyKey
		}
		if known {
			continue
		}
		p := &redis.Pending{
			Script: scripts[limit.Punish], Keys: limit.PunishKeys(c), Arguments: limit.PunishArguments(c),
			Charges: 1, Replies: 1, Due: q.due, Keep: true,
		}
		q.store.homeOf(c).server.Do(p)
		records = append(records, record{c, p})
	}
	for _, record := range records {
		if rest := q.store.punished(record.pending, record.charge, q.timer); rest > 0 {
			q.coolDown(record.charge.PenaltyKey, rest)
		}
	}
}

// punished waits for the rest of a cool-down, in µs; 0: none runs, or it is not known.
func (r *Redis) punished(p *redis.Pending, c *limit.Charge, timer *time.Timer) (rest int64) {
	if !wait(p, p.Due, timer) && p.Leave() {
		return 0
	}
	if redis.Reason(p.Err) == redis.ReasonWrong {
		r.healKeys(r.clientOf(c), limit.PunishKeys(c))
	}
	if p.Err != nil || len(p.Reply) < 2 {
		return 0
	}
	return p.Reply[1]
}

// coolDown enters a cool-down into the refusals of the rule.
func (q *question) coolDown(penaltyKey string, rest int64) {
	for i := range q.request.Charges {
		c, d := &q.request.Charges[i], &q.request.Decisions[i]
		if c.Penalty != nil && c.PenaltyKey == penaltyKey && d.Outcome == limit.Refused {
			d.Punished(c, rest)
		}
	}
}
