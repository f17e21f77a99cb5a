package rules

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// string reads text. Whole numbers, booleans and times without quotes are text as they are written. Numbers with a
// point are refused, as in the reference server: 1.10 and 1.1 are one number and two texts.
func (d *decoder) string(n *node) (string, bool) {
	switch {
	case n.kind != scalar || n.isNull():
		d.wants(n, "text")
		return "", false
	case n.describes(scalar):
		n.accept(plainText(0))
		return "", false
	case n.tag == "!!float" && n.plain:
		d.fail(n, "%s is a number, where text is needed; quote it: \"%s\"", clip(n.text), clip(n.text))
		return "", false
	}
	return n.text, true
}

// word reads text that must not be empty; what names it in the message.
func (d *decoder) word(n *node, what string) (string, bool) {
	if n.describes(scalar) {
		n.accept(plainText(1))
		return "", false
	}
	text, ok := d.string(n)
	if ok && text == "" {
		d.fail(n, "%s is empty; give it a value", what)
		return "", false
	}
	return text, ok
}

// text makes a reader for text.
func (d *decoder) text(to *string) reader {
	return func(n *node) { *to, _ = d.string(n) }
}

// name makes a reader for text that is shown to clients or people: neither empty nor with control characters, which
// could write headers of their own.
func (d *decoder) name(to *string) reader {
	return func(n *node) {
		text, _ := d.word(n, n.label)
		if d.printable(n) {
			*to = text
		}
	}
}

// printable refuses control characters in text.
func (d *decoder) printable(n *node) bool {
	control := n.kind == scalar && strings.ContainsFunc(n.text, unicode.IsControl)
	if control {
		d.fail(n, "%s has control characters, such as a line break; remove them", n.label)
	}
	return !control
}

// words makes a reader for a list of texts, none of them empty.
func (d *decoder) words(to *[]string) reader {
	return func(n *node) {
		d.some(n, func(item *node) {
			if text, ok := d.word(item, item.title()); ok {
				*to = append(*to, text)
			}
		})
	}
}

// boolWords are the booleans of YAML 1.1, which the reference server's files may hold.
var boolWords = map[string]bool{
	"true": true, "yes": true, "on": true, "y": true, "false": false, "no": false, "off": false, "n": false,
}

// bool reads a boolean.
func (d *decoder) bool(n *node) (value, ok bool) {
	if n.describes(scalar) {
		n.accept(trueOrFalse())
		return false, false
	}
	value, known := boolWords[strings.ToLower(n.text)]
	if n.kind != scalar || !n.plain || !known {
		d.wants(n, "true or false")
		return false, false
	}
	return value, true
}

// flag makes a reader for a boolean.
func (d *decoder) flag(to *bool) reader {
	return func(n *node) { *to, _ = d.bool(n) }
}

// integer reads a whole number between least and most, both included.
func (d *decoder) integer(n *node, least, most int64) (int64, bool) {
	if n.describes(scalar) {
		n.accept(wholeNumber(least, most))
		return 0, false
	}
	if !n.isNumber() {
		d.wants(n, "a whole number")
		return 0, false
	}
	positive, negative := strings.CutPrefix(n.text, "-")
	value, err := parseCount(positive)
	if errors.Is(err, strconv.ErrRange) {
		value, err = math.MaxInt64, nil
	}
	if err != nil {
		d.fail(n, "%s wants a whole number, such as 100 or 1_000, not %s", n.title(), clip(n.text))
		return 0, false
	}
	if negative {
		value = -value
	}
	if value < least || value > most {
		d.fail(n, "%s is %s; it must be between %d and %d", n.title(), clip(n.text), least, most)
		return 0, false
	}
	return value, true
}

// number makes a reader for a whole number between least and most.
func (d *decoder) number(to *int64, least, most int64) reader {
	return func(n *node) { *to, _ = d.integer(n, least, most) }
}

// small makes a reader for a whole number that fits an int.
func (d *decoder) small(to *int, least, most int64) reader {
	return func(n *node) {
		value, _ := d.integer(n, least, most)
		*to = int(value)
	}
}

var (
	errCount = errors.New("not a whole number")
	digits   = regexp.MustCompile("^" + countPattern + "$")
)

// parseCount reads decimal digits with single underscores between them. The error is errCount, or wraps
// strconv.ErrRange.
func parseCount(text string) (int64, error) {
	if !digits.MatchString(text) {
		return 0, errCount
	}
	value, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading a count: %w", err)
	}
	return value, nil
}

// duration reads a duration above 0.
func (d *decoder) duration(n *node) (time.Duration, bool) {
	if n.kind != scalar || n.isNull() {
		d.wants(n, "a duration such as 250ms, 10s, 1m, 1h or 7d")
		return 0, false
	}
	if n.describes(scalar) {
		n.accept(matching(durationPattern()))
		return 0, false
	}
	value, err := parseDuration(n.text)
	if err != nil {
		d.fail(n, "%s: %v", n.label, err)
		return 0, false
	}
	return value, true
}

// span makes a reader for a duration.
func (d *decoder) span(to *time.Duration) reader {
	return func(n *node) { *to, _ = d.duration(n) }
}

// units of a duration, the longest first, which is the order that 1h30m has to keep.
var units = []struct {
	name   string
	length time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

const maxDuration = 36500 * 24 * time.Hour

// parseDuration reads whole numbers with units: 250ms, 1s, 1m, 1h, 24h, 7d, 1h30m. Zero is an error.
func parseDuration(text string) (time.Duration, error) {
	rest, next := text, 0
	var sum time.Duration
	for rest != "" {
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		rest = rest[len(digits):]
		unit := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))]
		rest = rest[len(unit):]
		at := unitIndex(unit, next)
		if digits == "" || at < 0 {
			return 0, badDuration(text)
		}
		count, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || count > int64(maxDuration/units[at].length) {
			return 0, fmt.Errorf("%s is too long; the longest is 36500d", clip(text))
		}
		sum += time.Duration(count) * units[at].length
		next = at + 1
	}
	switch {
	case text == "":
		return 0, badDuration(text)
	case sum == 0:
		return 0, fmt.Errorf("%s must be at least 1ms", clip(text))
	case sum > maxDuration:
		return 0, fmt.Errorf("%s is too long; the longest is 36500d", clip(text))
	}
	return sum, nil
}

// unitIndex finds the unit of that name among units from the given one on, or returns -1.
func unitIndex(name string, from int) int {
	for i := from; i < len(units); i++ {
		if units[i].name == name {
			return i
		}
	}
	return -1
}

func badDuration(text string) error {
	return fmt.Errorf("%q must be a duration: a whole number and a unit of ms, s, m, h or d, such as 250ms, 1m or 7d",
		clip(text))
}

// instant makes a reader for a point in time.
func (d *decoder) instant(to *time.Time) reader {
	return func(n *node) {
		if n.kind != scalar || n.isNull() {
			d.wants(n, "a time such as 2027-01-01T00:00:00Z")
			return
		}
		if n.describes(scalar) {
			n.accept(matching(instantPattern))
			return
		}
		at, err := time.Parse(time.RFC3339, n.text)
		if err != nil {
			d.fail(n, "%s: %q must be a time such as 2027-01-01T00:00:00Z or 2027-01-01T00:00:00+01:00", n.label,
				clip(n.text))
			return
		}
		*to = at
	}
}

// cidrs makes a reader for a list of address ranges. Bits beyond the prefix are cleared; IPv4 written as IPv6 becomes
// IPv4, because addresses do too.
func (d *decoder) cidrs(to *[]netip.Prefix) reader {
	return func(n *node) {
		d.some(n, func(item *node) {
			if item.describes(scalar) {
				item.accept(matching(`[0-9A-Fa-f.:]+/[0-9]+`))
				return
			}
			text, ok := d.word(item, item.title())
			if !ok {
				return
			}
			prefix, err := parseCIDR(text)
			if err != nil {
				d.fail(item, "%v", err)
				return
			}
			*to = append(*to, prefix)
		})
	}
}

func parseCIDR(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err == nil && prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%q is wider than all of IPv4; write it as IPv4", clip(text))
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if err == nil {
		return prefix.Masked(), nil
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.Prefix{}, fmt.Errorf("%q is an address; write the range as %s/%d", text, text, addr.BitLen())
	}
	return netip.Prefix{}, fmt.Errorf("%q must be an address range such as 198.51.100.0/24 or 2001:db8::/32",
		clip(text))
}

// choice makes a reader for one word of a table.
func choice[T any](d *decoder, to *T, words map[string]T) reader {
	return func(n *node) {
		value, ok := pick(d, n, words)
		if ok {
			*to = value
		}
	}
}

// pick reads one word of a table.
func pick[T any](d *decoder, n *node, words map[string]T) (T, bool) {
	var none T
	if n.describes(scalar) {
		n.accept(oneWord(words))
		return none, false
	}
	text, ok := d.string(n)
	if !ok {
		return none, false
	}
	value, known := words[text]
	if !known {
		d.fail(n, "unknown %s %q; %s", n.label, clip(text), suggest(text, sorted(words)))
	}
	return value, known
}
