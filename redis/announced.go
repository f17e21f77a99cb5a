package redis

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// Bounds of one reply: go-redis makes room for what a reply announces before it comes, without a bound of its own.
const (
	mostItems   = 1 << 20 // of all its lists
	longestText = 8 << 20 // bytes
	longestLine = 64 << 10
)

var errAnnounced = errors.New("the reply must not announce more than a Redis sends")

// announced follows the replies on a connection, and finds one that announces too much.
type announced struct {
	line  []byte // the present one as far as it came
	skip  int    // bytes of a text that are still to come
	items int    // of all lists of the present reply
	open  int    // of these, still to come
}

// check takes in what came, and returns how much of it is in front of what announces too much.
func (a *announced) check(b []byte) (good int) {
	for good < len(b) {
		text := min(a.skip, len(b)-good)
		line, _, whole := bytes.Cut(b[good+text:], []byte("\n"))
		a.skip, a.line = a.skip-text, append(a.line, line...)
		if len(a.line) > longestLine || whole && !a.begin(string(bytes.TrimSuffix(a.line, []byte("\r")))) {
			return good + text
		}
		good += text + len(line)
		if whole {
			good, a.line = good+1, a.line[:0]
		}
	}
	return good
}

// begin takes in the first line of a reply, or of an item of a list, and reports whether it may be.
func (a *announced) begin(line string) bool {
	if a.open--; a.open < 0 {
		a.open, a.items = 0, 0
	}
	if strings.IndexAny(line, ":+-") == 0 {
		return true
	}
	if strings.IndexAny(line, "$*") != 0 {
		return false // there are only these two in RESP2
	}
	n, err := strconv.Atoi(line[1:])
	switch {
	case err != nil || n < -1:
		return false
	case n < 0: // it is missing
	case line[0] == '$':
		a.skip = n + len("\r\n")
		return n <= longestText
	default:
		a.open, a.items = a.open+n, a.items+n
	}
	return a.items <= mostItems
}
