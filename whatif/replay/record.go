package replay

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// record is one request of a log. Its strings share one copy of the line.
type record struct {
	at     int64 // µs since the epoch
	order  int64 // of the line, among those of its log
	size   int   // bytes of the line
	code   int   // that the client got; 0: not known
	values []string
	ranks  []int8 // of the values: 0 means not set, else one more than the rank of the field
}

// errNoRequest is about a line that is about something else than a request, such as a connection.
var errNoRequest = errors.New("not a request")

// read fills the record from a line.
func (r *record) read(l *layout, line string) error {
	if cap(r.values) < l.slots {
		r.values, r.ranks = make([]string, l.slots), make([]int8, l.slots)
	}
	clear(r.values)
	clear(r.ranks)
	var err error
	switch line[0] {
	case '{':
		err = readJSON(l, r, line)
	case '[':
		err = readText(l, r, line)
	default:
		err = errors.New("neither JSON nor Envoy's text format")
	}
	if err != nil {
		return err
	}
	return r.finish(l)
}

// set takes the value of a field. Envoy writes a hyphen for what it does not have.
func (r *record) set(l *layout, field, value string) {
	if value == "" || value == "-" {
		return
	}
	for _, p := range l.places[field] {
		rank := int8(p.rank + 1)
		if r.ranks[p.slot] == 0 || rank < r.ranks[p.slot] {
			r.values[p.slot], r.ranks[p.slot] = value, rank
		}
	}
}

// finish reads what is not text, and notes which fields there were.
func (r *record) finish(l *layout) error {
	if r.values[slotMethod] == "" && r.values[slotPath] == "" && l.descriptors == nil {
		if r.values[slotTime] == "" {
			return errors.New("no field holds the time, method or path: name them by --field")
		}
		return errNoRequest
	}
	at, err := readTime(r.values[slotTime])
	if err != nil {
		return err
	}
	r.at = at
	r.code = 0
	if code, err := strconv.Atoi(r.values[slotCode]); err == nil {
		r.code = code
	}
	l.note(r)
	return nil
}

// note remembers which of the fields that were asked for a line has.
func (l *layout) note(r *record) {
	for i, asked := range l.asked {
		if l.seen[i] {
			continue
		}
		for _, p := range l.places[asked.Field] {
			l.seen[i] = l.seen[i] || r.ranks[p.slot] > 0
		}
	}
}

// The years in which a time is one: outside of them a number is in another unit, or nonsense.
var (
	earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// readTime reads RFC 3339, or a number of seconds, milliseconds or microseconds since the epoch.
func readTime(text string) (int64, error) {
	if text == "" {
		return 0, errors.New("the time is missing")
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		at, err = readEpoch(text)
	}
	if err != nil || at.Before(earliest) || at.After(latest) {
		return 0, fmt.Errorf("%s is not a time", clip(text))
	}
	return at.UnixMicro(), nil
}

func readEpoch(text string) (time.Time, error) {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.Time{}, err
	}
	for _, unit := range []float64{1e6, 1e3, 1, 1e-3} { // of µs
		at := time.UnixMicro(int64(number * unit))
		if number > 0 && number*unit < 1e16 && at.After(earliest) {
			return at, nil
		}
	}
	return time.Time{}, errors.New("not a time")
}

// peer is the address of the connection's other end. Where the log does not have it, Envoy has appended it to
// x-forwarded-for.
func (r *record) peer() string {
	if text := r.values[slotPeer]; text != "" {
		if at, err := netip.ParseAddrPort(text); err == nil {
			return at.Addr().String()
		}
		return text
	}
	forwarded := r.values[slotForwarded]
	return strings.TrimSpace(forwarded[strings.LastIndexByte(forwarded, ',')+1:])
}

// clip quotes a text that came from outside, and no more of it than a line shows.
func clip(text string) string {
	const most = 100
	if len(text) > most {
		return strconv.QuoteToASCII(text[:most]) + "…"
	}
	return strconv.QuoteToASCII(text)
}
