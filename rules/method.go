package rules

import (
	"slices"
	"strings"
)

// methods are those of HTTP and WebDAV that have a registration. Others are allowed, and hardly ever meant.
var methods = strings.Fields(
	`ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY
	MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PROPFIND PROPPATCH PURGE PUT
	QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL`)

// methods makes a reader for methods, in any case.
func (d *decoder) methods(to *[]string) reader {
	return func(n *node) {
		d.some(n, func(item *node) {
			text, ok := d.word(item, item.title())
			if !ok {
				return
			}
			*to = append(*to, text)
			d.checkMethod(item, strings.ToUpper(text))
		})
		d.checkOverride(n, *to)
	}
}

// checkOverride warns of methods that a POST may mean: many frameworks take the method of a header, or of a field
// of a form, instead. Once for each file is enough.
func (d *decoder) checkOverride(n *node, named []string) {
	has := func(method string) bool {
		return slices.ContainsFunc(named, func(one string) bool { return strings.EqualFold(one, method) })
	}
	if d.overrides || has("POST") {
		return
	}
	for _, method := range []string{"DELETE", "PATCH", "PUT"} {
		if has(method) {
			d.overrides = true
			d.warn(n, "a POST with a header like x-http-method-override may stand for a %s, and does not match; "+
				"let Envoy remove such headers, or name POST too", method)
			return
		}
	}
}

// checkMethod warns of a method that no client is likely to send.
func (d *decoder) checkMethod(n *node, method string) {
	usual := []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
	for _, known := range methods {
		if method == known {
			return
		}
	}
	near := nearest(method, usual)
	switch {
	case method == "*" || method == "ANY" || method == "ALL":
		d.warn(n, "%q is not a method; remove methods to match every one", clip(n.text))
	case near != "":
		d.warn(n, "unknown method %q; did you mean %q?", clip(n.text), near)
	default:
		d.warn(n, "unknown method %q; known here: %s", clip(n.text), strings.Join(methods, ", "))
	}
}
