package descriptors

import (
	"strconv"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

var unitLengths = [...]time.Duration{
	Second: time.Second, Minute: time.Minute, Hour: time.Hour, Day: 24 * time.Hour,
	Week: 7 * 24 * time.Hour, Month: 30 * 24 * time.Hour, Year: 365 * 24 * time.Hour,
}

var unitNames = [...]string{"UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR"}

// String returns the unit's name in Envoy's answers.
func (u Unit) String() string {
	if int(u) >= len(unitNames) {
		return unitNames[UnitUnknown]
	}
	return unitNames[u]
}

// Duration returns the length of the unit, or 0 for an unknown one.
func (u Unit) Duration() time.Duration {
	if int(u) >= len(unitLengths) {
		return 0
	}
	return unitLengths[u]
}

// reportUnit returns how a window is reported: in the largest unit of which it is a whole number, else in seconds,
// rounded up.
func reportUnit(window time.Duration) (Unit, uint32) {
	for u := Year; u > UnitUnknown; u-- {
		length := u.Duration()
		if window >= length && window%length == 0 {
			return u, uint32(window / length)
		}
	}
	return Second, uint32((window + time.Second - 1) / time.Second)
}

// window returns the override's window, and whether the override can be read. A window that is longer than any limit's
// is cut to the longest: an override that is ignored would admit.
func (o *Override) window() (time.Duration, bool) {
	length := o.Unit.Duration()
	if length == 0 || o.Multiplier == 0 {
		return 0, false
	}
	if uint64(o.Multiplier) > uint64(limit.MaxWindow/length) {
		return limit.MaxWindow, true
	}
	return length * time.Duration(o.Multiplier), true
}

// maxOverrides bounds the effects that a domain keeps for overrides. Meshes send few different ones; past the bound
// each request makes its own.
const maxOverrides = 1024

// overrides keeps the effects of the overrides that a mesh sends.
type overrides struct {
	domain    string
	onFailure Failure // of the domain

	mu    sync.RWMutex
	known map[Override]*Effect // guarded by mu
}

func (o *overrides) effect(asked Override, window time.Duration) *Effect {
	o.mu.RLock()
	e := o.known[asked]
	o.mu.RUnlock()
	if e != nil {
		return e
	}
	unit, multiplier := asked.Unit, asked.Multiplier
	if int64(multiplier) > int64(window/unit.Duration()) { // the window was cut
		unit, multiplier = reportUnit(window)
	}
	e = &Effect{
		Rule: RuleOverride, Scope: ScopeDescriptor, Tree: true, Dynamic: true, Unit: unit, Multiplier: multiplier,
		OnFailure: o.onFailure,
		Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: int64(asked.Count), Window: window,
			Burst: int64(asked.Count)},
	}
	e.class, e.lease = classOf(o.domain, e), Lease(0).most()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known = map[Override]*Effect{}
	}
	if len(o.known) < maxOverrides {
		o.known[asked] = e
	}
	return e
}

// chargeOverride adds what an override charges. Its key has the window and not the number, so that a count continues
// when only the number changes. Its metric has a level for each key and no values, which a client could make up.
func (d *CompiledDomain) chargeOverride(req *Request, m *Match, o *Override, i int) {
	window, ok := o.window()
	if !ok {
		return
	}
	s, entries := &m.scratch, req.Descriptors[i].Entries
	d.appendTreeHead(s, nil, entries)
	s.key = append(s.key, ":~"...)
	s.key = strconv.AppendInt(s.key, window.Microseconds(), 10)
	s.key = append(s.key, ":fw"...)
	metric := make([]string, len(entries))
	for j, e := range entries {
		metric[j] = e.Key
	}
	effect := d.overrides.effect(*o, window)
	op, cost := req.spends(i, 1, false)
	m.addCharge(Term{Effect: effect, Descriptor: i, Metric: metric},
		limit.Charge{Key: string(s.key), Limit: effect.Limit, Cost: cost, Op: op, Each: d.ChargeDenied})
}
