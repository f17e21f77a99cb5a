package rules

import "strings"

// methods are those of HTTP and WebDAV that have a registration. Others are allowed, and hardly ever meant.
var methods = strings.Fields(`ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY
	MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT
	SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL`)

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
		d.warn(n, "%q is no method; remove methods to match every one", clip(n.text))
	case near != "":
		d.warn(n, "unknown method %q; did you mean %q?", clip(n.text), near)
	default:
		d.warn(n, "unknown method %q; known here: %s", clip(n.text), strings.Join(methods, ", "))
	}
}
