package store

import (
	"context"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// punish records the refusals by rules with a penalty, each penalty once, by a second call, and enters the cool-downs
// that they start. A refusal whose second call is lost does not count.
func (q *question) punish(ctx context.Context) {
	records := map[string]*redis.Pending{} // by the penalty's key
	for i := range q.request.Charges {
		c := &q.request.Charges[i]
		if c.Penalty == nil || records[c.PenaltyKey] != nil || !c.Punishes(q.request.Decisions[i]) {
			continue
		}
		records[c.PenaltyKey] = &redis.Pending{
			Script: scripts[limit.Punish], Keys: limit.PunishKeys(c), Arguments: limit.PunishArguments(c),
			Charges: 1, Replies: 1, Due: q.due, Keep: true,
		}
		q.store.homeOf(c).server.Do(records[c.PenaltyKey])
	}
	for key, record := range records {
		if wait(record, q.due, q.timer) || !record.Leave() {
			q.coolDown(ctx, key, record)
		}
	}
}

// coolDown enters the rest of a cool-down, as it was recorded, into the refusals of its rule.
func (q *question) coolDown(ctx context.Context, key string, record *redis.Pending) {
	for i := range q.request.Charges {
		c, d := &q.request.Charges[i], &q.request.Decisions[i]
		switch {
		case c.Penalty == nil || c.PenaltyKey != key || d.Outcome != limit.Refused:
		case redis.Reason(record.Err) == redis.ReasonWrong:
			q.heal(ctx, c, record.Keys...)
		case record.Err == nil && len(record.Reply) > 1 && record.Reply[1] > 0:
			d.Punished(c, record.Reply[1]) // µs
		}
	}
}
