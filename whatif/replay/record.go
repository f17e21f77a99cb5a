package replay

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// record is one request of a log. Its strings share one copy of the line.
type record struct {
	at     int64 // µs since the epoch
	order  int64 // of the line, among those of its log
	size   int   // bytes of the line
	code   int   // that the client got; 0: not known
	cost   uint64
	format format
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
		r.format, err = formatJSON, readJSON(l, r, line)
	case '[':
		r.format = formatEnvoy
		err = readText(l, r, line)
	default:
		r.format, err = formatCombined, readCombined(l, r, line)
	}
	if err != nil {
		return err
	}
	return r.finish(l)
}

// set takes the value of a field. Envoy writes a hyphen for what it does not have.
func (r *record) set(l *layout, field, value string) {
	if l.learning {
		l.learn(field)
	}
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
	r.splitRequest()
	if r.values[slotMethod] == "" && r.values[slotPath] == "" && l.descriptors == nil {
		if r.values[slotTime] == "" && r.values[slotRequest] == "" {
			return errors.New("no field holds the time, method or path: name them by --field")
		}
		return errNoRequest
	}
	at, err := readTime(r.values[slotTime])
	if err != nil {
		return err
	}
	r.at = at
	r.code, r.cost = 0, 0
	if code, err := strconv.Atoi(r.values[slotCode]); err == nil {
		r.code = code
	}
	if text := r.values[slotCost]; text != "" {
		r.cost, err = readCost(text)
		if err != nil {
			return err
		}
	}
	l.note(r)
	return nil
}

// readCost reads how much a request cost, such as its tokens.
func readCost(text string) (uint64, error) {
	cost, err := strconv.ParseFloat(text, 64)
	if err != nil || !(cost >= 0 && cost <= float64(limit.MaxCost)) {
		return 0, fmt.Errorf("%s is not a cost", clip(text))
	}
	return uint64(math.Ceil(cost)), nil
}

// note remembers which fields a line has.
func (l *layout) note(r *record) {
	l.formats[r.format]++
	l.learning = l.learning && l.formats.total() < learnedLines
	for s, rank := range r.ranks[:slotExtra] {
		l.used[s] |= 1 << rank
	}
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

// timeLocal is the time of nginx and Apache.
const timeLocal = "02/Jan/2006:15:04:05 -0700"

// readTime reads RFC 3339, the time of nginx and Apache, or a number of seconds, milliseconds or microseconds since the
// epoch.
func readTime(text string) (int64, error) {
	if text == "" {
		return 0, errors.New("the time is missing")
	}
	form := time.RFC3339Nano
	if len(text) == len(timeLocal) && text[2] == '/' {
		form = timeLocal
	}
	at, err := time.Parse(form, text)
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
