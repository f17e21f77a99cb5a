package database

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/test/must"
)

// TestRefusingOutcomesAreTheEngines compares the words of outcomes that did not pass with the engine's. What shadow
// mode lets pass was admitted.
func TestRefusingOutcomesAreTheEngines(t *testing.T) {
	var want []string
	for o := range engine.Outcomes {
		if o.Refuses() && o != engine.Shadowed {
			want = append(want, o.String())
		}
	}
	if !slices.Equal(want, refusing) {
		t.Errorf("the control takes %v for refusals, the engine %v", refusing, want)
	}
}

// TestDaysAndMonthsWhereClocksChangeAtMidnight asks for usage on days that begin at one o'clock, or have two midnights.
func TestDaysAndMonthsWhereClocksChangeAtMidnight(t *testing.T) {
	d, ctx := migrated(t), t.Context()
	run(t, d, `INSERT INTO users (domain, name, updated_by) VALUES ('shop', 'ann', 'test')`)
	for before, one := range []struct{ zone, now, day, next, month string }{
		{"America/Santiago", "2026-09-06T15:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z",
			"2026-09-01T04:00:00Z"},
		{"America/Santiago", "2026-09-05T15:00:00Z", "2026-09-05T04:00:00Z", "2026-09-06T04:00:00Z",
			"2026-09-01T04:00:00Z"},
		{"America/Asuncion", "2023-10-05T15:00:00Z", "2023-10-05T03:00:00Z", "2023-10-06T03:00:00Z",
			"2023-10-01T04:00:00Z"},
		{"America/Havana", "2026-11-01T15:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z",
			"2026-11-01T04:00:00Z"},
	} {
		was, text := int64(before), "domain: shop\ntimezone: "+one.zone+"\nrules: []\n"
		_, _, err := d.AddVersion(ctx, Actor{Name: "test"}, "shop", text, "", true, &was)
		if err != nil {
			t.Fatal(err)
		}
		now := must.Get(time.Parse(time.RFC3339, one.now))(t)
		u := must.Get(d.UserUsage(ctx, "shop", "ann", "user:ann", now))(t)
		got := []string{utc(u.Today.From), utc(u.Today.To), utc(u.Month.From)}
		if want := []string{one.day, one.next, one.month}; !slices.Equal(got, want) {
			t.Errorf("%s at %s: today, tomorrow and this month begin at %v, want %v", one.zone, one.now, got, want)
		}
	}
}

// utc is an instant as text.
func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// TestNoRowIsLeftOut has as many rows of statistics as an answer may have, and then one more: that is refused, and not
// cut. Totals are those with the most requests.
func TestNoRowIsLeftOut(t *testing.T) {
	d, ctx := migrated(t), t.Context()
	from := time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC)
	statistics := func() (int, error) {
		all, err := d.Statistics(ctx, "shop", "endpoint", StepHour, from, from.Add(24*time.Hour))
		return len(all), err
	}
	caches := func() (int, error) {
		all, err := d.Caches(ctx, "shop", StepHour, from, from.Add(24*time.Hour))
		return len(all), err
	}
	run(t, d, november)
	run(t, d, fmt.Sprintf(`INSERT INTO endpoint_hours SELECT '2026-11-05Z', 'shop', '', '/' || n, 'allowed', 1, 1,
	  '{0,1}' FROM generate_series(1, %d) n`, mostStatistics))
	run(t, d, fmt.Sprintf(`INSERT INTO cache_hours SELECT '2026-11-05Z', 'shop', 'cache-' || n, 1, 1
	  FROM generate_series(1, %d) n`, mostStatistics))
	for what, ask := range map[string]func() (int, error){"statistics": statistics, "caches": caches} {
		if n, err := ask(); n != mostStatistics || err != nil {
			t.Errorf("%s: %d rows, %v, want all", what, n, err)
		}
	}
	run(t, d,
		`INSERT INTO endpoint_hours VALUES ('2026-11-05 01:00Z', 'shop', '', '/newest', 'allowed', 5, 5, '{0,1}')`)
	run(t, d, `INSERT INTO cache_hours VALUES ('2026-11-05 01:00Z', 'shop', 'newest', 1, 1)`)
	for what, ask := range map[string]func() (int, error){"statistics": statistics, "caches": caches} {
		n, err := ask()
		var problem *httpapi.Problem
		if !errors.As(err, &problem) || problem.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d rows, %v, want 422", what, n, err)
		}
	}
	all, err := d.Statistics(ctx, "shop", "endpoint", StepTotal, from, from.Add(24*time.Hour))
	if err != nil || len(all) != mostStatistics || all[0].Name != "/newest" {
		t.Errorf("%d totals, %v, want those with the most requests", len(all), err)
	}
}
