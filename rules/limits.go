package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

const unlimited = "unlimited"

var algorithms = wordsOf(limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow, limit.SlidingLog)

// limit makes a reader for one limit of a rule or an account: count/duration, unlimited, or a map.
func (d *decoder) limit(to *[]descriptors.Limit) reader {
	return func(n *node) {
		l := descriptors.Limit{Pos: d.pos(n), Limit: limit.Limit{Algorithm: limit.TokenBucket}}
		read := d.shortLimit
		if n.kind == mapping {
			read = d.longLimit
		}
		if !d.sound(func() { read(n, &l) }) {
			d.repair(n, &l)
		}
		*to = append(*to, l)
	}
}

// shortLimit reads count/duration or unlimited.
func (d *decoder) shortLimit(n *node, to *descriptors.Limit) {
	if n.kind != scalar || n.isNull() {
		d.wants(n, "count/duration such as 100/1m, unlimited, or a map with count and per")
		return
	}
	if n.describes(scalar) {
		n.accept(matching(unlimited + "|" + countPattern + "/" + durationPattern()))
		return
	}
	if n.text == unlimited {
		to.Unlimited = true
		return
	}
	count, window, cut := strings.Cut(n.text, "/")
	if !cut {
		d.badShortLimit(n)
		return
	}
	var ok bool
	to.Count, ok = d.shortCount(n, count)
	if !ok {
		return
	}
	to.Burst = to.Count
	var err error
	to.Window, err = parseDuration(window)
	if _, calendar := calendarUnits[window]; calendar {
		err = fmt.Errorf("%s must be written as a map here: { count: %s, per: %s }", window, count, window)
	}
	if err != nil {
		d.fail(n, "%s: %v", n.label, err)
	}
}

// lease makes a reader for whether tokens may be on lease: a boolean, or a map with the most of one counter.
func (d *decoder) lease(to *descriptors.Lease) reader {
	return func(n *node) {
		if n.kind == mapping {
			var most int64
			d.object(n, map[string]reader{"max": d.number(&most, 1, limit.MaxLease)})
			*to = descriptors.Lease(most)
			return
		}
		if wanted, ok := d.bool(n); ok && !wanted {
			*to = descriptors.NoLease
		}
	}
}

func (d *decoder) badShortLimit(n *node) {
	switch _, err := parseCount(n.text); {
	case err == nil:
		d.fail(n, "%s: %s must have a window, such as %s/1m", n.label, n.text, n.text)
	case Distance(normal(n.text), unlimited) <= tolerance(unlimited):
		d.fail(n, "%s: unknown limit %q; did you mean %q?", n.label, clip(n.text), unlimited)
	default:
		d.fail(n, "%s: %q must be a limit: count/duration, such as 100/1m, or unlimited", n.label, clip(n.text))
	}
}

// shortCount reads the count in count/duration.
func (d *decoder) shortCount(n *node, text string) (int64, bool) {
	count, err := parseCount(text)
	if errors.Is(err, errCount) {
		d.fail(n, "%s: %q must be a whole number, such as 100 or 1_000", n.label, clip(text))
		return 0, false
	}
	if err != nil || count > limit.MaxCount {
		d.fail(n, "%s: %s is too many; a count is at most %d", n.label, clip(text), int64(limit.MaxCount))
		return 0, false
	}
	return count, true
}

// longLimit reads a limit written as a map.
func (d *decoder) longLimit(n *node, to *descriptors.Limit) {
	var burst, algorithm *node
	d.object(n, map[string]reader{
		"name":      d.name(&to.Name),
		"count":     d.number(&to.Count, 0, limit.MaxCount),
		"per":       func(n *node) { d.window(n, to) },
		"burst":     func(n *node) { burst = n; d.number(&to.Burst, 0, limit.MaxCount)(n) },
		"algorithm": func(n *node) { algorithm = n; choice(d, &to.Algorithm, algorithms)(n) },
	})
	advice := map[string]string{"count": "this limit has no count; add `count: 100`, say",
		"per": "this limit has no window; add `per: 1m`, say"}
	for _, key := range d.missing(n, "count", "per") {
		if !d.lost(n, key) {
			d.fail(n, "%s", advice[key])
		}
	}
	d.calendar(algorithm, to)
	d.burst(burst, to)
}

// calendarUnits are the windows that end with a day or a month of the domain's time zone.
var calendarUnits = wordsOf(descriptors.CalendarDay, descriptors.CalendarMonth)

// window reads per: a duration, or a window of the calendar.
func (d *decoder) window(n *node, to *descriptors.Limit) {
	if n.describes(scalar) {
		n.accept(schema{"enum": sorted(calendarUnits)})
	}
	unit, known := calendarUnits[n.text]
	switch {
	case n.kind == scalar && strings.HasPrefix(n.text, "calendar") && !known:
		d.fail(n, "unknown window %q; %s", clip(n.text), suggest(n.text, sorted(calendarUnits)))
		return
	case n.kind != scalar || !known:
		d.span(&to.Window)(n)
		return
	}
	to.CalendarUnit, to.Window = unit, unit.Length()
}

// calendar settles the algorithm of a limit after its window is known; n is where it was given, or nil.
func (d *decoder) calendar(n *node, to *descriptors.Limit) {
	if to.CalendarUnit == 0 {
		return
	}
	if n != nil && !to.Algorithm.HasCalendar() {
		d.fail(n, "%s is counted by fixed_window only, not by %s; remove algorithm", to.CalendarUnit, to.Algorithm)
	}
	to.Algorithm = limit.FixedWindow
}

// burst settles the burst of a limit after its other keys are known; n is where it was given, or nil.
func (d *decoder) burst(n *node, to *descriptors.Limit) {
	if n == nil {
		to.Burst = to.Count
	}
	if to.Algorithm.HasBurst() {
		return
	}
	to.Burst = 0
	if n != nil {
		d.fail(n, "burst holds for token_bucket only, not for %s; remove it", to.Algorithm)
	}
}

// treeUnits are the units of the reference server by their words: of fixed length, aligned to the epoch.
var treeUnits = func() map[string]descriptors.Unit {
	table := map[string]descriptors.Unit{}
	for u := descriptors.Second; u <= descriptors.Year; u++ {
		table[strings.ToLower(u.String())] = u
	}
	return table
}()

// treeKeys are the keys of a tree's limit that its checks have to point at; nil where not given.
type treeKeys struct{ unit, multiplier, per, count, burst, algorithm *node }

// treeLimit makes a reader for rate_limit: the reference server's keys and ours.
func (d *decoder) treeLimit(to *[]descriptors.Limit) reader {
	return func(n *node) {
		l := descriptors.Limit{Pos: d.pos(n), Limit: limit.Limit{Algorithm: limit.FixedWindow}, Multiplier: 1}
		var at treeKeys
		var length time.Duration
		sound := d.sound(func() {
			ok := d.object(n, map[string]reader{
				"unit":              optional(func(n *node) { at.unit = n; length = d.unit(n, &l) }),
				"unit_multiplier":   func(n *node) { at.multiplier = n; d.multiplier(n, &l) },
				"per":               func(n *node) { at.per = n; d.window(n, &l) },
				"requests_per_unit": optional(func(n *node) { at.count = n; l.Count = d.uint32(n) }),
				"unlimited":         optional(d.flag(&l.Unlimited)),
				"name":              optional(d.treeName(&l.Name)),
				"replaces":          optional(d.replaces(&l)),
				"algorithm":         func(n *node) { at.algorithm = n; choice(d, &l.Algorithm, algorithms)(n) },
				"burst":             func(n *node) { at.burst = n; d.number(&l.Burst, 0, limit.MaxCount)(n) },
			})
			n.excludes("unit", "per")
			if ok {
				d.treeWindow(n, at, length, &l)
				d.calendar(at.algorithm, &l)
				d.burst(at.burst, &l)
			}
		})
		l.CountUnset = at.count == nil && !l.Unlimited
		if !sound {
			d.repair(n, &l)
		}
		*to = append(*to, l)
	}
}

// treeName makes a reader for the name of a limit of a tree, which may be empty.
func (d *decoder) treeName(to *string) reader {
	return func(n *node) {
		text, _ := d.string(n)
		if d.printable(n) {
			*to = text
		}
	}
}

// unit reads a unit of time in any case and returns its length.
func (d *decoder) unit(n *node, to *descriptors.Limit) time.Duration {
	if n.describes(scalar) {
		n.accept(anyOf(oneWord(treeUnits), matching(anyCase(sorted(treeUnits)))))
		return 0
	}
	text, ok := d.string(n)
	if !ok {
		return 0
	}
	unit, known := treeUnits[strings.ToLower(text)]
	if !known {
		d.fail(n, "unknown unit %q; %s", clip(text), suggest(text, sorted(treeUnits)))
		return 0
	}
	to.Unit = unit
	return unit.Duration()
}

func (d *decoder) multiplier(n *node, to *descriptors.Limit) {
	value, _ := d.integer(n, 1, 1<<32-1)
	to.Multiplier = uint32(value)
}

// treeWindow settles the window of a tree's limit after its keys are known.
func (d *decoder) treeWindow(n *node, at treeKeys, length time.Duration, to *descriptors.Limit) {
	switch {
	case to.Unlimited:
		to.Multiplier = 0
		d.alone(at)
	case at.per != nil:
		to.Multiplier = 0
		d.perAlone(at)
	case at.unit == nil:
		d.fail(n, "this limit has no unit; add `unit: minute` or `per: 90s`, say")
	case length > 0 && int64(to.Multiplier) > int64(limit.MaxWindow/length):
		d.fail(at.multiplier, "unit_multiplier %d makes the window too long; the longest is 3650 days", to.Multiplier)
	default:
		to.Window = length * time.Duration(to.Multiplier)
	}
}

// alone refuses keys that mean nothing beside unlimited.
func (d *decoder) alone(at treeKeys) {
	for _, n := range []*node{at.unit, at.per, at.multiplier} {
		if n != nil {
			d.fail(n, "%s means nothing beside unlimited; remove one of the two", n.label)
		}
	}
}

// perAlone refuses keys that repeat per.
func (d *decoder) perAlone(at treeKeys) {
	if at.unit != nil {
		d.fail(at.per, "per stands in place of unit; remove one of the two")
	}
	if at.multiplier != nil {
		d.fail(at.multiplier, "unit_multiplier belongs to unit, and per needs none; write the whole time in per")
	}
}

// uint32 reads requests_per_unit as the reference server does: in any base that YAML knows, up to 2^32-1.
func (d *decoder) uint32(n *node) int64 {
	const most = 1<<32 - 1
	if n.describes(scalar) {
		n.accept(anyOf(wholeNumber(0, most), matching(`\+?0?[xob]?[0-9A-Fa-f_]+`)))
		return 0
	}
	if !n.isNumber() {
		d.wants(n, "a whole number")
		return 0
	}
	if n.tag == "!!float" && strings.ContainsAny(n.text, ".eEnN") {
		d.fail(n, "%s wants a whole number, not %s", n.label, clip(n.text))
		return 0
	}
	value, err := strconv.ParseInt(strings.TrimPrefix(strings.ReplaceAll(n.text, "_", ""), "+"), 0, 64)
	if err != nil || value < 0 || value > most {
		d.fail(n, "%s is %s; it must be between 0 and %d", n.label, clip(n.text), int64(most))
		return 0
	}
	return value
}

func (d *decoder) replaces(to *descriptors.Limit) reader {
	return func(n *node) {
		d.each(n, func(item *node) {
			replaced := descriptors.Replaced{Pos: d.pos(item)}
			keys := map[string]reader{"name": optional(d.text(&replaced.Name))}
			if d.sound(func() { d.object(item, keys) }) {
				to.Replaces = append(to.Replaces, replaced)
			}
		})
	}
}
