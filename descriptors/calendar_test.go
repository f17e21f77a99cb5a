package descriptors

import (
	"sync"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

// TestDaysAndMonthsBeginWhereTheyDo holds edges against dates that people know, also where clocks change at midnight.
func TestDaysAndMonthsBeginWhereTheyDo(t *testing.T) {
	for _, c := range []struct {
		zone  string
		unit  CalendarUnit
		at    string
		edges [4]string
	}{
		{"UTC", CalendarDay, "2026-01-31T12:00:00Z", [4]string{"2026-01-30T00:00:00Z", "2026-01-31T00:00:00Z",
			"2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z"}},
		{"UTC", CalendarMonth, "2028-02-29T23:59:59Z", [4]string{"2028-01-01T00:00:00Z", "2028-02-01T00:00:00Z",
			"2028-03-01T00:00:00Z", "2028-04-01T00:00:00Z"}},
		{"UTC", CalendarMonth, "2026-12-31T00:00:00Z", [4]string{"2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z",
			"2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"}},
		// 23 and 25 hours.
		{"Europe/Berlin", CalendarDay, "2026-03-29T12:00:00+02:00", [4]string{"2026-03-28T00:00:00+01:00",
			"2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", "2026-03-31T00:00:00+02:00"}},
		{"Europe/Berlin", CalendarDay, "2026-10-25T12:00:00+01:00", [4]string{"2026-10-24T00:00:00+02:00",
			"2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", "2026-10-27T00:00:00+01:00"}},
		{"Europe/Berlin", CalendarMonth, "2026-03-31T23:59:59+02:00", [4]string{"2026-02-01T00:00:00+01:00",
			"2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00", "2026-05-01T00:00:00+02:00"}},
		// A midnight that does not exist: the day begins at one o'clock.
		{"America/Sao_Paulo", CalendarDay, "2018-11-04T12:00:00-02:00", [4]string{"2018-11-03T00:00:00-03:00",
			"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00", "2018-11-06T00:00:00-02:00"}},
		// The hour before midnight twice, and midnight twice: the first counts.
		{"America/Sao_Paulo", CalendarDay, "2018-02-18T12:00:00-03:00", [4]string{"2018-02-17T00:00:00-02:00",
			"2018-02-18T00:00:00-03:00", "2018-02-19T00:00:00-03:00", "2018-02-20T00:00:00-03:00"}},
		{"America/Havana", CalendarDay, "2025-11-02T12:00:00-05:00", [4]string{"2025-11-01T00:00:00-04:00",
			"2025-11-02T00:00:00-04:00", "2025-11-03T00:00:00-05:00", "2025-11-04T00:00:00-05:00"}},
		// A day that a zone left out.
		{"Pacific/Apia", CalendarDay, "2011-12-31T12:00:00+14:00", [4]string{"2011-12-31T00:00:00+14:00",
			"2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00", "2012-01-02T00:00:00+14:00"}},
		{"Asia/Kathmandu", CalendarMonth, "2026-05-01T00:00:00+05:45", [4]string{"2026-04-01T00:00:00+05:45",
			"2026-05-01T00:00:00+05:45", "2026-06-01T00:00:00+05:45", "2026-07-01T00:00:00+05:45"}},
	} {
		calendar := &calendar{unit: c.unit, zone: zone(t, c.zone)}
		got := calendar.around(instant(t, c.at).UnixMicro())
		for i, edge := range got.Edges {
			if want := instant(t, c.edges[i]); edge != want.UnixMicro() {
				t.Errorf("%s in %s: edge %d of %s is %v, want %v", c.unit, c.zone, i, c.at,
					time.UnixMicro(edge).In(calendar.zone), want)
			}
		}
	}
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	zone := must.Get(time.LoadLocation(name))(t)
	return zone
}

// windowOf is the window of a calendar that an instant is in.
func windowOf(c *limit.Calendar, at int64) (begin, end int64, known bool) {
	for i, edge := range c.Edges[1:] {
		if c.Edges[i] <= at && at < edge {
			return c.Edges[i], edge, true
		}
	}
	return 0, 0, false
}

// TestEveryInstantIsInItsDay walks through three years in steps that hit all hours, in zones of many kinds.
func TestEveryInstantIsInItsDay(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Havana", "Africa/Cairo", "Asia/Beirut",
		"Australia/Lord_Howe", "Pacific/Kiritimati", "Pacific/Niue", "America/St_Johns"} {
		for _, unit := range []CalendarUnit{CalendarDay, CalendarMonth} {
			c := &calendar{unit: unit, zone: zone(t, name)}
			end := instant(t, "2027-01-01T00:00:00Z")
			for at := instant(t, "2024-01-01T00:00:00Z"); at.Before(end); at = at.Add(7*time.Hour + 13*time.Minute) {
				begin, until, known := windowOf(c.around(at.UnixMicro()), at.UnixMicro())
				if !known || begin > at.UnixMicro() || until <= at.UnixMicro() {
					t.Fatalf("%s in %s: %v is not within its window from %d to %d", unit, name, at, begin, until)
				}
				for _, edge := range []int64{begin, until} {
					first, before := time.UnixMicro(edge).In(c.zone), time.UnixMicro(edge-1).In(c.zone)
					if first.Day() == before.Day() || unit == CalendarMonth && first.Month() == before.Month() {
						t.Fatalf("%s in %s: a window begins at %v, after %v", unit, name, first, before)
					}
				}
			}
		}
	}
}

// TestCalendarsFollowTheStoresClock holds that windows are those around the store's time, once it is known.
func TestCalendarsFollowTheStoresClock(t *testing.T) {
	now := instant(t, "2026-03-10T23:59:59Z")
	c := &calendar{unit: CalendarDay, zone: time.UTC, now: func() time.Time { return now }}
	first := c.windows()
	if c.windows() != first {
		t.Error("the windows of one day are made twice")
	}
	c.observe(now.Add(2 * time.Second).UnixMicro())
	if c.windows() != first {
		t.Error("a store that is two seconds ahead moves the windows, which hold its time anyway")
	}
	now = now.Add(time.Second)
	if got, want := c.windows().Edges[1], instant(t, "2026-03-11T00:00:00Z").UnixMicro(); got != want {
		t.Errorf("the next day begins at %d, want %d", got, want)
	}
	c.observe(now.Add(-50 * 24 * time.Hour).UnixMicro())
	if got, want := c.windows().Edges[1], instant(t, "2026-01-20T00:00:00Z").UnixMicro(); got != want {
		t.Errorf("with a store 50 days behind the day begins at %d, want %d", got, want)
	}
}

// Many requests at once charge the monthly quota of a user's profile, in a domain whose rules use no calendar.
func TestMonthlyProfilesAreMetAtOnce(t *testing.T) {
	set, problems := Compile([]Domain{{Name: "shop"}}, Options{})
	if set == nil {
		t.Fatal(problems)
	}
	monthly := Limit{Limit: limit.Limit{Count: 10, Algorithm: limit.FixedWindow, Window: CalendarMonth.Length()},
		CalendarUnit: CalendarMonth}
	var all sync.WaitGroup
	for _, name := range []string{"alice", "bob", "carol", "dave"} {
		profile := &Profile{ID: identity.ID{Kind: identity.UserID, Name: name}, Limits: []Limit{monthly}}
		all.Go(func() {
			req := &Request{Domain: "shop", Profiles: &Profiles{User: profile},
				Descriptors: []Descriptor{{Entries: []Entry{{"user", name}}}}}
			var m Match
			set.Match(req, &m)
			if len(m.Charges) != 1 || m.Charges[0].Limit.Calendar == nil {
				t.Errorf("%s: %d charges", name, len(m.Charges))
			}
			m.Domain.ObserveTime(time.Now().UnixMicro())
		})
	}
	all.Wait()
}
