package copier

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
)

// eventColumns are those of the table, in the order of eventRow.
var eventColumns = []string{
	"at", "sidecar", "sequence", "place", "domain", "outcome", "rule", "identity", "tenant", "api_key", "ip",
	"method", "endpoint",
	"count", "count_limit", "cost", "status", "retry_after", "latency", "region", "weight",
}

// eventRow is a row of the table. fit has bounded its numbers.
func eventRow(i *item, place int, e *journal.Event, key string, at time.Time) []any {
	return []any{
		at, i.Sidecar, i.Sequence, int32(place), e.Domain, e.Outcome, e.Rule, e.Identity, e.Tenant, key, e.IP,
		e.Method, e.Endpoint,
		e.Count, e.Limit, e.Cost, int16(e.Status), float32(e.RetryAfter), float32(float64(e.Latency) / 1000), i.Region,
		int32(e.Weight),
	}
}

// copyEvents stores events by COPY, and adds them to the latencies of identities.
func (c *Copier) copyEvents(ctx context.Context, tx pgx.Tx, sources map[string]*source, items []*item,
	now time.Time) error {
	if !slices.ContainsFunc(items, func(i *item) bool { return len(i.rows.Events) > 0 }) {
		return nil
	}
	keys, err := c.keyIDs(ctx, tx, items)
	if err != nil {
		return err
	}
	n, place, sampled := 0, -1, ledger{}
	next := func() ([]any, error) {
		place++
		for n < len(items) && place == len(items[n].rows.Events) {
			n, place = n+1, 0
		}
		if n == len(items) {
			return nil, nil
		}
		i, e := items[n], &items[n].rows.Events[place]
		at, moved := when(time.UnixMicro(e.At), now)
		if moved {
			sources[i.Sidecar].moved++
		}
		s := sampled.at(usageKey{at: at.Unix(), domain: e.Domain, name: e.Identity}, 3600)
		s.count++
		s.latency.Add(time.Duration(e.Latency)*time.Microsecond, e.Weight)
		return eventRow(i, place, e, keys[[2]string{e.Domain, e.APIKey}], at), nil
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"events"}, eventColumns, pgx.CopyFromFunc(next))
	if err != nil {
		return fmt.Errorf("copy events: %w", err)
	}
	c.passed("events")
	return latencyTable.addUp(ctx, tx, steps[1], sampled)
}
