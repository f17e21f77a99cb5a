package replay

import "time"

// changes counts what the second rule set does otherwise than the first.
type changes struct {
	both, neither, more, fewer, moved int64
	limited, freed                    *tops // refused by the second alone, and by the first alone
}

func newChanges() *changes { return &changes{limited: newTops(), freed: newTops()} }

// compare counts the last request of both.
func (c *changes) compare(before, after *side, at time.Time) {
	switch {
	case before.last.refused && after.last.refused:
		c.both++
		if before.last.tally.name() != after.last.tally.name() {
			c.moved++
		}
	case before.last.refused:
		c.fewer++
		c.freed.count(before.last.key, at, before.called)
	case after.last.refused:
		c.more++
		c.limited.count(after.last.key, at, after.called)
	default:
		c.neither++
	}
}

func (c *changes) report() *Changes {
	return &Changes{
		RefusedByBoth: c.both, RefusedByNeither: c.neither, NewlyRefused: c.more, NewlyAdmitted: c.fewer,
		OtherRule: c.moved,
		Limited:   c.limited.list(), Freed: c.freed.list(), Incomplete: c.limited.Dropped() || c.freed.Dropped(),
	}
}
