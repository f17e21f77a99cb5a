package redis

import (
	"bytes"
	"errors"
	"strconv"
)

// Bounds of one reply: go-redis makes room for what a reply announces before it comes.
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

// check takes in what came.
func (a *announced) check(b []byte) error {
	for len(b) > 0 {
		if a.skip > 0 {
			n := min(a.skip, len(b))
			a.skip, b = a.skip-n, b[n:]
			continue
		}
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if len(a.line)+len(line) > longestLine {
			return errAnnounced
		}
		if !whole || len(a.line) > 0 {
			a.line = append(a.line, line...)
			line = a.line
		}
		if !whole {
			return nil
		}
		if !a.begin(bytes.TrimSuffix(line, []byte("\r"))) {
			return errAnnounced
		}
		a.line, b = a.line[:0], rest
	}
	return nil
}

// begin takes in the first line of a reply, or of an item of a list, and reports whether it may be.
func (a *announced) begin(line []byte) bool {
	if a.open--; a.open < 0 {
		a.open, a.items = 0, 0
	}
	if len(line) == 0 {
		return false
	}
	switch line[0] {
	case '$', '=', '!':
		n, ok := length(line, longestText)
		if n >= 0 {
			a.skip = n + len("\r\n")
		}
		return ok
	case '*', '~', '>', '%', '|':
		n, ok := length(line, mostItems)
		n = max(n, 0)
		if line[0] == '%' || line[0] == '|' {
			n *= 2 // pairs
		}
		a.open, a.items = a.open+n, a.items+n
		return ok && a.items <= mostItems
	}
	return true
}

// length is the number in a line, -1 for a text or a list that is missing.
func length(line []byte, most int) (n int, ok bool) {
	n, err := strconv.Atoi(string(line[1:]))
	return n, err == nil && n >= -1 && n <= most
}
