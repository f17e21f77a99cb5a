package replay

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// The common format of nginx and Apache, the combined one, which has two more values, and nginx's own "main" and what
// Apache calls vhost_combined, which have one more at the end or at the beginning:
//
//	REMOTE_ADDR - REMOTE_USER [TIME_LOCAL] "METHOD PATH PROTOCOL" STATUS BYTES
//	REMOTE_ADDR - REMOTE_USER [TIME_LOCAL] "METHOD PATH PROTOCOL" STATUS BYTES "REFERER" "AGENT" "X-FORWARDED-FOR"
//	SERVER:PORT REMOTE_ADDR - REMOTE_USER [TIME_LOCAL] …
//
// The fields have the names of nginx's variables. Quotes within quotes are escaped.
var quotedBehind = []string{"http_referer", "http_user_agent", "http_x_forwarded_for"}

var errFormat = errors.New("no known format: neither JSON nor a text format of Envoy, Istio, nginx or Apache")

// readCombined reads a line in the common or the combined format.
func readCombined(l *layout, r *record, line string) error {
	who, rest, found := strings.Cut(line, " [")
	at, rest, closed := strings.Cut(rest, "] \"")
	if !found || !closed {
		return errFormat
	}
	err := r.setWho(l, who)
	if err != nil {
		return err
	}
	r.set(l, "time_local", at)
	request, rest, closed := cutQuoted(rest)
	status, rest, found := strings.Cut(strings.TrimPrefix(rest, " "), " ")
	if !closed || !found {
		return errFormat
	}
	r.set(l, "request", request)
	r.set(l, "status", status)
	bytes, rest, more := strings.Cut(rest, " \"")
	r.set(l, "body_bytes_sent", bytes)
	for i := 0; more && i < len(quotedBehind); i++ {
		var value string
		value, rest, closed = cutQuoted(rest)
		if !closed {
			return errors.New("the line is cut off")
		}
		r.set(l, quotedBehind[i], value)
		rest, more = strings.CutPrefix(rest, " \"")
	}
	return nil
}

// setWho reads what is in front of the time. A user may have spaces.
func (r *record) setWho(l *layout, who string) error {
	first, rest, found := strings.Cut(who, " ")
	second, user, named := strings.Cut(rest, " ")
	if !found || !named {
		return errFormat
	}
	if ident, rest, more := strings.Cut(user, " "); more && ident == "-" && !isAddress(first) {
		server, _, _ := strings.Cut(first, ":")
		r.set(l, "server_name", server)
		first, user = second, rest
	}
	r.set(l, "remote_addr", first)
	r.set(l, "remote_user", user)
	return nil
}

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

// cutQuoted cuts a text at its closing quote. A backslash escapes what follows it.
func cutQuoted(text string) (value, rest string, closed bool) {
	end := strings.IndexByte(text, '"')
	if end >= 0 && strings.IndexByte(text[:end], '\\') < 0 {
		return text[:end], text[end+1:], true
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return unescape(text[:i]), text[i+1:], true
		}
	}
	return "", "", false
}

// unescape reads what nginx and Apache write for quotes, backslashes and bytes that are not printable.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		if text[i] == 'x' && i+2 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// splitRequest takes method and path from a request line, where no field of their own holds them. A line that is not
// one, such as what a scanner sent, is not a request.
func (r *record) splitRequest() {
	line := r.values[slotRequest]
	if line == "" || r.values[slotMethod] != "" || r.values[slotPath] != "" {
		return
	}
	method, rest, found := strings.Cut(line, " ")
	path, protocol, _ := strings.Cut(rest, " ")
	if found && path != "" && strings.HasPrefix(protocol, "HTTP/") {
		r.values[slotMethod], r.values[slotPath] = method, path
	}
}
