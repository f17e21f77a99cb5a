package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// ForPrograms refuses what a page in a browser asks: for a port that serves programs alone.
func ForPrograms(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" || foreign(r) {
			forbid(w, "this port does not answer pages in a browser")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ForOwnPages refuses what a page of another origin asks in a browser, also one that made its own name lead to this
// machine. Hosts are further names of this machine.
func ForOwnPages(next http.Handler, hosts ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case foreign(r) && !visits(r), !fromSameHost(r):
			forbid(w, "the request comes from a page of another origin")
		case r.TLS == nil && viaLoopback(r) && !ownName(r.Host, hosts):
			forbid(w, fmt.Sprintf("the port was asked under the name %q: use localhost or an address", r.Host))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func forbid(w http.ResponseWriter, why string) {
	Plain(w)
	w.WriteHeader(http.StatusForbidden)
	fmt.Fprintln(w, why)
}

// visits reports whether a browser shows the live page itself, to which any page may have a link.
func visits(r *http.Request) bool {
	return r.URL.Path == "/" && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// fromSameHost reports whether a request comes from a page under the host that it asks, or from no page.
func fromSameHost(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	of, err := url.Parse(origin)
	return err == nil && of.Host == r.Host
}

// viaLoopback reports whether a request came in by the loopback interface, as those of a browser on this machine do,
// and those of a port that was forwarded.
func viaLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && FromHere(at.String())
}

// ownName reports whether a host with its port is an address, localhost, or one of hosts. A page of a browser cannot
// choose these.
func ownName(host string, hosts []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	same := func(name string) bool { return strings.EqualFold(name, host) }
	return err == nil || same("localhost") || host != "" && slices.ContainsFunc(hosts, same)
}

// FromHere reports whether an address, as a server sees it, is of this machine.
func FromHere(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// foreign reports whether a browser sends a request for a page of another origin. Reading, too, is refused: it would
// take the place of a reader of events, though the page would not see the answer.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return true
}
