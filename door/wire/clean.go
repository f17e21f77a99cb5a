package wire

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// MaxText is the most bytes of a name that leaves, and of a header value that lists limits.
const MaxText = 256

// AppendName appends the name of a limit as printable ASCII without quotes or backslashes. It is put between quotes
// into a header of the client's response as it is, so any other byte could end the quote, or the header.
func AppendName(b []byte, name string) []byte {
	for i := range min(len(name), MaxText) {
		c := name[i]
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			c = '_'
		}
		b = append(b, c)
	}
	return b
}

// AppendValue appends a header's value as printable ASCII. Envoy checks no value that a service hands it: a line break
// would start a header of its own. Values come from rules, which bound their length when they are loaded.
func AppendValue(b []byte, value string) []byte {
	for i := range len(value) {
		c := value[i]
		if c < ' ' || c > '~' {
			c = '?'
		}
		b = append(b, c)
	}
	return b
}

// AppendEscaped appends text as the inside of a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendEscaped(b []byte, text string) []byte {
	const hex = "0123456789abcdef"
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xf])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// AppendPlain appends text without control bytes but line breaks and tabs. Bytes that are not UTF-8 become U+FFFD.
func AppendPlain(b []byte, text string) []byte {
	for _, r := range text {
		if (r < ' ' && r != '\n' && r != '\r' && r != '\t') || r == 0x7f {
			continue
		}
		b = utf8.AppendRune(b, r)
	}
	return b
}

// Seconds rounds up to whole seconds, at least 1: Envoy drops fractions, and no client should come back too early.
func Seconds(d time.Duration) uint64 {
	if d <= time.Second {
		return 1
	}
	return uint64((d-1)/time.Second) + 1
}

// AppendPolicy appends an item of the field RateLimit-Policy: so many per window.
func AppendPolicy(b []byte, name string, count int64, window time.Duration) []byte {
	b = appendPolicyName(b, name)
	b = strconv.AppendUint(append(b, ";q="...), uint64(max(count, 0)), 10)
	return strconv.AppendUint(append(b, ";w="...), Seconds(window), 10)
}

// AppendService appends an item of the field RateLimit: so many left, and more in so many seconds.
func AppendService(b []byte, name string, remaining int64, seconds uint64) []byte {
	b = appendPolicyName(b, name)
	b = strconv.AppendUint(append(b, ";r="...), uint64(max(remaining, 0)), 10)
	return strconv.AppendUint(append(b, ";t="...), seconds, 10)
}

// appendPolicyName writes a limit's name as a structured field's string. It is shorter than a name may be elsewhere, so
// that a policy fits into a header.
func appendPolicyName(b []byte, name string) []byte {
	if name == "" {
		name = "default"
	}
	b = append(b, '"')
	b = AppendName(b, name[:min(len(name), MaxText/2)])
	return append(b, '"')
}

// Reset is the value of a header about when a limit is whole again: whole seconds, or the unix time at which they are
// over, rounded up.
func Reset(after time.Duration, unix bool, now func() time.Time) uint64 {
	if !unix {
		return Seconds(after)
	}
	at := now().Add(max(after, 0))
	seconds := at.Unix()
	if at.Nanosecond() > 0 {
		seconds++
	}
	return uint64(max(seconds, 0))
}
