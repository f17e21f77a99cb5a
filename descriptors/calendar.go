package descriptors

import (
	"sort"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// CalendarUnit is what a window of a calendar spans. The zero value means none.
type CalendarUnit uint8

// The windows of a calendar.
const (
	CalendarDay CalendarUnit = iota + 1
	CalendarMonth
)

// String returns the word of a rule file.
func (u CalendarUnit) String() string {
	switch u {
	case CalendarDay:
		return "calendar_day"
	case CalendarMonth:
		return "calendar_month"
	}
	return ""
}

// Length is the usual length of the window: a month is taken for 30 days, as in Month.
func (u CalendarUnit) Length() time.Duration {
	switch u {
	case CalendarDay:
		return Day.Duration()
	case CalendarMonth:
		return Month.Duration()
	}
	return 0
}

// calendar finds the windows of one unit in one time zone, around the time of the store. The reasons are in
// docs/decisions/0029-calendar-windows.md.
type calendar struct {
	unit    CalendarUnit
	zone    *time.Location
	now     func() time.Time
	ahead   atomic.Int64 // µs by which the store's clock is ahead of now, as last seen
	current atomic.Pointer[limit.Calendar]
}

// tolerance is how far, in µs, the store's clock may be off what is known of it without being noted again.
const tolerance = int64(time.Minute / time.Microsecond)

// observe takes in what time it is at the store.
func (c *calendar) observe(at int64) {
	ahead := at - c.now().UnixMicro()
	if off := ahead - c.ahead.Load(); off > tolerance || off < -tolerance {
		c.ahead.Store(ahead)
	}
}

// windows returns the windows around the present. They are made once per window.
func (c *calendar) windows() *limit.Calendar {
	at := c.now().UnixMicro() + c.ahead.Load()
	known := c.current.Load()
	if known != nil && at >= known.Edges[1] && at < known.Edges[2] {
		return known
	}
	made := c.around(at)
	c.current.Store(made)
	return made
}

// around makes the windows around an instant: the one before it, its own, and the one after.
func (c *calendar) around(at int64) *limit.Calendar {
	made := new(limit.Calendar)
	year, month, day := time.UnixMicro(at).In(c.zone).Date()
	for i := range made.Edges {
		if c.unit == CalendarMonth {
			made.Edges[i] = firstOf(c.zone, year, month+time.Month(i-1), 1)
		} else {
			made.Edges[i] = firstOf(c.zone, year, month, day+i-1)
		}
	}
	return made
}

// firstOf is the first instant of a day, in µs since the epoch. It is looked for: where clocks change at midnight, the
// day may begin at one o'clock, or have two midnights. A day that a zone leaves out begins with the next one.
func firstOf(zone *time.Location, year int, month time.Month, day int) int64 {
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	const before, span = 36 * time.Hour, 72 * time.Hour // no zone is further from UTC than 14 h
	from := date.Add(-before)
	seconds := sort.Search(int(span/time.Second), func(i int) bool {
		y, m, d := from.Add(time.Duration(i) * time.Second).In(zone).Date()
		return !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(date)
	})
	return from.Add(time.Duration(seconds) * time.Second).UnixMicro()
}

// DayOf is when a day begins in a time zone: that of an instant, or one so many days later.
func DayOf(at time.Time, zone *time.Location, later int) time.Time {
	year, month, day := at.In(zone).Date()
	return time.UnixMicro(firstOf(zone, year, month, day+later)).In(zone)
}

// MonthOf is when a month begins in a time zone: that of an instant, or one so many months later.
func MonthOf(at time.Time, zone *time.Location, later int) time.Time {
	year, month, _ := at.In(zone).Date()
	return time.UnixMicro(firstOf(zone, year, month+time.Month(later), 1)).In(zone)
}

// calendarOf returns the calendar of a unit, which all limits of the domain share; nil for none.
func (d *CompiledDomain) calendarOf(unit CalendarUnit) *calendar {
	if unit == 0 {
		return nil
	}
	return d.calendars[unit-1]
}

// limit is the limit of an effect, with the windows around the present where they are a calendar's. A nil calendar has
// none.
func (c *calendar) limit(e *Effect) limit.Limit {
	l := e.Limit
	if c != nil {
		l.Calendar = c.windows()
	}
	return l
}

// ObserveTime takes in what time it is at the store, in µs since the epoch, as the store decided it for a calendar's
// limit. The windows that the next charges bring along are those around that time. It is safe for concurrent use.
func (d *CompiledDomain) ObserveTime(at int64) {
	for _, c := range d.calendars {
		if c != nil {
			c.observe(at)
		}
	}
}
