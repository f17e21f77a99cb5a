package journal

import (
	"strconv"
	"unicode/utf8"
)

// AppendUsage appends the JSON of rows of usage.
func AppendUsage(b []byte, u *Usage) []byte {
	b = append(b, `{"identities":[`...)
	for i := range u.Identities {
		b = appendIdentity(comma(b, i), &u.Identities[i])
	}
	b = append(b, `],"endpoints":[`...)
	for i := range u.Endpoints {
		b = appendEndpoint(comma(b, i), &u.Endpoints[i])
	}
	b = append(b, `],"keys":[`...)
	for i := range u.Keys {
		r := &u.Keys[i]
		b = appendKeyRow(comma(b, i), r.Minute, r.Domain, r.Key, r.Requests, r.Refused)
	}
	b = append(b, `],"caches":[`...)
	for i := range u.Caches {
		b = appendCache(comma(b, i), &u.Caches[i])
	}
	return append(b, `]}`...)
}

func appendIdentity(b []byte, r *IdentityRow) []byte {
	b = appendKey(b, r.Minute, r.Domain, r.Rule, r.Identity, r.Outcome)
	return append(appendNumber(appendNumber(b, r.Requests), r.Cost), ']')
}

func appendEndpoint(b []byte, r *EndpointRow) []byte {
	b = appendKey(b, r.Minute, r.Domain, r.Rule, r.Endpoint, r.Outcome)
	b = append(appendNumber(appendNumber(b, r.Requests), r.Cost), ',')
	return append(r.Latency.append(b), ']')
}

func appendKeyRow[T string | []byte](b []byte, minute int64, domain, key T, requests, refused int64) []byte {
	b = appendText(append(strconv.AppendInt(append(b, '['), minute, 10), ','), domain)
	b = appendText(append(b, ','), key)
	return append(appendNumber(appendNumber(b, requests), refused), ']')
}

func appendCache(b []byte, r *CacheRow) []byte {
	b = appendText(append(strconv.AppendInt(append(b, '['), r.Minute, 10), ','), r.Cache)
	return append(appendNumber(appendNumber(b, r.Hits), r.Misses), ']')
}

// appendKey begins a row of identities or endpoints.
func appendKey[T string | []byte](b []byte, minute int64, domain, rule, value T, outcome string) []byte {
	b = strconv.AppendInt(append(b, '['), minute, 10)
	b = appendText(append(b, ','), domain)
	b = appendText(append(b, ','), rule)
	b = appendText(append(b, ','), value)
	return appendText(append(b, ','), outcome)
}

func appendNumber(b []byte, n int64) []byte { return strconv.AppendInt(append(b, ','), n, 10) }

func comma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}

// AppendEvent appends the JSON of one event, without the members that are zero.
func AppendEvent(b []byte, e *Event) []byte {
	b = strconv.AppendInt(append(b, `{"at":`...), e.At, 10)
	b = memberText(b, "domain", e.Domain)
	b = memberText(b, "outcome", e.Outcome)
	b = memberText(b, "rule", e.Rule)
	b = memberText(b, "identity", e.Identity)
	b = memberText(b, "api_key", e.APIKey)
	b = memberText(b, "ip", e.IP)
	b = memberText(b, "method", e.Method)
	b = memberText(b, "endpoint", e.Endpoint)
	b = memberNumber(b, "count", e.Count)
	b = memberNumber(b, "limit", e.Limit)
	b = memberNumber(b, "cost", e.Cost)
	b = memberNumber(b, "status", int64(e.Status))
	if e.RetryAfter != 0 {
		b = strconv.AppendFloat(member(b, "retry_after"), e.RetryAfter, 'f', -1, 64)
	}
	b = memberNumber(b, "latency", e.Latency)
	b = memberNumber(b, "weight", e.Weight)
	return append(b, '}')
}

func member(b []byte, name string) []byte {
	return append(append(append(b, ',', '"'), name...), '"', ':')
}

func memberText[T string | []byte](b []byte, name string, text T) []byte {
	if len(text) == 0 {
		return b
	}
	return appendText(member(b, name), text)
}

func memberNumber(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(member(b, name), n, 10)
}

// appendText appends a text in quotes. What is not UTF-8 becomes U+FFFD, and so does NUL, which PostgreSQL refuses in a text.
func appendText[T string | []byte](b []byte, text T) []byte {
	b = append(b, '"')
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(string(text[i:min(i+utf8.UTFMax, len(text))]))
			b = utf8.AppendRune(b, r)
			i += size
			continue
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == 0:
			b = utf8.AppendRune(b, utf8.RuneError)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}

const digits = "0123456789abcdef"
