package copier

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
)

// mostCalled is how many endpoints of an identity have rows of their own in an hour. Requests of further ones count as
// those of (others): clients choose the paths, and must not choose how much the database has to keep.
const mostCalled = 100

// hourOf is an hour of an identity.
type hourOf struct {
	at           int64
	domain, name string
}

// addCalls adds what identities used of endpoints, by hour.
func (c *Copier) addCalls(ctx context.Context, tx pgx.Tx, calls ledger) error {
	known, err := calledBefore(ctx, tx, calls)
	if err != nil {
		return fmt.Errorf("read which endpoints have rows: %w", err)
	}
	bounded := ledger{}
	for _, k := range slices.SortedFunc(maps.Keys(calls), usageKey.compare) {
		s, hour := calls[k], hourOf{k.at, k.domain, k.name}
		all := known[hour]
		if all == nil {
			all = map[string]bool{}
			known[hour] = all
		}
		if !all[k.rule] && k.rule != journal.Others {
			if len(all) >= mostCalled {
				k.rule = journal.Others
			} else {
				all[k.rule] = true
			}
		}
		t := bounded.at(k, 1)
		t.count, t.amount = t.count+s.count, t.amount+s.amount
	}
	err = callTable.addUp(ctx, tx, steps[1], bounded)
	c.passed("calls")
	return err
}

// calledBefore reads which endpoints have rows in the hours of calls.
func calledBefore(ctx context.Context, tx pgx.Tx, calls ledger) (map[hourOf]map[string]bool, error) {
	known := map[hourOf]map[string]bool{}
	var hours columns
	for k := range calls {
		if hour := (hourOf{k.at, k.domain, k.name}); known[hour] == nil {
			known[hour] = map[string]bool{}
			hours.append(k.domain, k.name, time.Unix(k.at, 0))
		}
	}
	if hours == nil {
		return known, nil
	}
	rows, err := tx.Query(ctx, `SELECT DISTINCT c.domain, c.identity, c.at, c.endpoint
	  FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS u (domain, identity, at)
	  JOIN call_hours AS c USING (domain, identity, at) WHERE c.endpoint <> $4`, hours[0], hours[1], hours[2],
		journal.Others)
	if err != nil {
		return nil, err
	}
	var domain, name, endpoint string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&domain, &name, &at, &endpoint}, func() error {
		known[hourOf{at.Unix(), domain, name}][endpoint] = true
		return nil
	})
	return known, err
}
