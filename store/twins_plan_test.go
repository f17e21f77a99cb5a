package store_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// What the walk of the twins is made of: random limits, costs, instants; and the values that the script keeps.

// plan makes up the next request.
func (w *walker) plan(q *request) {
	w.tick()
	q.now = w.now
	q.refused = w.chance(0.05)
	plain := w.chance(0.4) // as most requests are: what the script decides before it defines anything else
	for range w.size() {
		k := w.random.IntN(walkKeys)
		if len(q.keys) > 0 && !plain && w.chance(0.25) {
			k = q.keys[0]
		}
		if w.chance(0.005) {
			w.limits[k] = w.limit()
		}
		l := w.limits[k]
		if w.chance(0.02) {
			l = w.limit() // two limits on one key, which a rule change in flight can bring about
		}
		if l.Calendar != nil && !w.chance(0.2) {
			l.Calendar = w.calendar(l.Window.Microseconds())
		}
		q.keys = append(q.keys, k)
		c := limit.Charge{Key: w.key(k), Limit: l, Cost: w.cost(l), Op: w.op(), Mode: w.mode(), Each: w.chance(0.3)}
		if plain && c.Op == limit.Refund {
			c.Op = limit.Spend
		}
		if !plain && w.chance(0.2) {
			c.MaxWait = w.wait(l)
		}
		if !plain && w.chance(0.3) {
			c.Until = max(1, w.now+w.random.Int64N(2*l.Window.Microseconds()+1)-l.Window.Microseconds())
		}
		q.charges = append(q.charges, c)
		record := noRecord
		if !plain {
			record = w.punish(q)
		}
		q.records = append(q.records, record)
	}
}

func (w *walker) size() int {
	switch p := w.random.Float64(); {
	case p < 0.7:
		return 1
	case p < 0.997:
		return 2 + w.random.IntN(3)
	}
	return 17 + w.random.IntN(8)
}

// tick moves the clock: mostly a little forward, at times by windows, at times back.
func (w *walker) tick() {
	window := w.limits[w.random.IntN(walkKeys)].Window.Microseconds()
	switch p := w.random.Float64(); {
	case p < 0.2:
	case p < 0.6:
		w.now += w.random.Int64N(max(window/50, 3))
	case p < 0.85:
		w.now += w.random.Int64N(window + 1)
	case p < 0.9:
		w.now += w.random.Int64N(3*window + 1)
	case p < 0.93:
		w.now += window - w.now%window // the start of a window
	case p < 0.97:
		w.now -= w.random.Int64N(max(window/50, 3))
	default:
		w.now -= w.random.Int64N(3*window + 1)
	}
	if w.chance(0.1) {
		w.now = w.edge()
	}
	if w.now < walkLow || w.now > walkHigh {
		w.now = walkStart + w.random.Int64N(1_000_000_000_000)
	}
}

func (w *walker) chance(p float64) bool { return w.random.Float64() < p }

func pick[T any](w *walker, of ...T) T { return of[w.random.IntN(len(of))] }

// limit makes up a limit that Validate accepts.
func (w *walker) limit() limit.Limit {
	for {
		counts := []int64{1, 2, 3, 7, 10, 60, 100, 1 + w.random.Int64N(500)}
		if w.kind != limit.SlidingLog {
			counts = append(counts, 999_983, 1_000_000, limit.MaxCount, 1+w.random.Int64N(limit.MaxCount))
		}
		l := limit.Limit{Algorithm: w.kind, Count: pick(w, counts...), Window: w.window()}
		if w.chance(0.03) {
			l.Count = 0
		}
		if w.kind == limit.FixedWindow && w.chance(0.4) {
			l.Calendar = w.calendar(l.Window.Microseconds())
		}
		l.Burst = pick(w, l.Count, l.Count, 1, 2*l.Count, w.random.Int64N(l.Count+1))
		if l.Validate() == nil {
			return l
		}
	}
}

// calendar makes up windows of about that length, mostly around the present.
func (w *walker) calendar(window int64) *limit.Calendar {
	var c limit.Calendar
	at := w.now - w.random.Int64N(4*window+1)
	if w.chance(0.5) {
		at -= at % window // the same windows again and again
	}
	for i := range c.Edges {
		c.Edges[i] = max(at, 0)
		at += window
		if w.chance(0.3) {
			at += w.random.Int64N(window/4 + 1)
		}
	}
	return &c
}

func (w *walker) window() time.Duration {
	const day = 24 * time.Hour
	if w.chance(0.2) {
		return (time.Microsecond + time.Duration(w.random.Int64N(int64(time.Minute)))).Truncate(time.Microsecond)
	}
	return pick(w, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Second, time.Minute, time.Minute,
		time.Hour, day, 30*day, 365*day, limit.MaxWindow)
}

func (w *walker) cost(l limit.Limit) int64 {
	capacity := l.Capacity()
	switch p := w.random.Float64(); {
	case p < 0.5:
		return 1 + w.random.Int64N(capacity/10+1)
	case p < 0.8:
		return 1
	case p < 0.96:
		return w.random.Int64N(capacity + 2)
	}
	return pick(w, 0, capacity, capacity+1, limit.MaxCount, limit.MaxCost, math.MaxInt64)
}

func (w *walker) op() limit.Op {
	return pick(w, limit.Spend, limit.Spend, limit.Spend, limit.Spend, limit.Spend, limit.Spend, limit.Peek, limit.Refund, limit.Debit)
}

func (w *walker) mode() limit.Mode {
	return pick(w, limit.Enforced, limit.Enforced, limit.Shadow, limit.Quota)
}

// decodeState reads what the script keeps under a key; no key is the zero State.
func decodeState(kind limit.Algorithm, value string) (limit.State, error) {
	var s limit.State
	if value == "" {
		return s, nil
	}
	if kind == limit.SlidingLog {
		return decodeLog([]byte(value))
	}
	at, used, third, err := decodeNumbers([]byte(value))
	s.At, s.Used = at, used
	switch kind {
	case limit.TokenBucket:
		s.Rem = third
	case limit.SlidingWindow:
		s.Prev = third
	}
	return s, err
}

// decodeNumbers insists on the shortest of the three layouts.
func decodeNumbers(value []byte) (at, used, third int64, err error) {
	order := binary.BigEndian
	double := func(i int) int64 { return int64(math.Float64frombits(order.Uint64(value[i:]))) }
	short := false
	switch len(value) {
	case 12:
		at, used, short = double(0), int64(order.Uint32(value[8:])), true
	case 16:
		at, used, third = double(0), int64(order.Uint32(value[8:])), int64(order.Uint32(value[12:]))
		short = third > 0
	case 24:
		at, used, third = double(0), double(8), double(16)
		short = used > math.MaxUint32 || third > math.MaxUint32
	}
	if !short || used == 0 && third == 0 {
		return 0, 0, 0, fmt.Errorf("value %x is not a state in its shortest form", value)
	}
	return at, used, third, nil
}

func decodeLog(value []byte) (limit.State, error) {
	var numbers []int64
	for ; len(value) >= 8; value = value[8:] {
		numbers = append(numbers, int64(math.Float64frombits(binary.BigEndian.Uint64(value))))
	}
	if len(value) > 0 || len(numbers) < 4 || len(numbers)%2 != 0 {
		return limit.State{}, fmt.Errorf("a log of %d numbers and %d bytes is cut", len(numbers), len(value))
	}
	s := limit.State{At: numbers[0], Prev: numbers[1]}
	for i := 2; i < len(numbers); i += 2 {
		s.Log = append(s.Log, limit.Entry{At: numbers[i], Sum: numbers[i+1]})
	}
	return s, nil
}
