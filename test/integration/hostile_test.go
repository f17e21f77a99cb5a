package integration

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// Envoy checks no header that a service hands it: a line break in one would let a rule file, or a client, write headers
// of its own into a response.
func TestLineBreaksNeverSplitAResponse(t *testing.T) {
	w := start(t, setup{env: []string{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true"}})
	for i, text := range []string{
		"domain: partners\ndescriptors:\n  - {key: partners, value: all, rate_limit: {unit: day, requests_per_unit: " +
			"0, name: \"a\\r\\nx-evil: 1\"}}\n",
		"domain: partners\ndescriptors:\n  - {key: partners, value: all, rate_limit: {unit: day, requests_per_unit: " +
			"0}, response: {headers: {x-note: \"a\\r\\nx-evil: 1\"}}}\n",
		"domain: partners\ndescriptors:\n  - {key: partners, value: all, rate_limit: {unit: day, requests_per_unit: " +
			"0}, response: {headers: {\"x-a\\r\\nx-evil\": \"1\"}}}\n",
	} {
		w.noErrors(t, fmt.Sprintf("rule file %d", i+1), func(t *testing.T) {
			seen := strings.Count(w.sidecar.Output(), "partners.yaml:")
			w.writeRule(t, "partners.yaml", text)
			servers.Await(t, "the report of the bad file", func() error {
				if strings.Count(w.sidecar.Output(), "partners.yaml:") == seen {
					return errors.New("the log does not name partners.yaml")
				}
				return nil
			})
			got := w.get(t, "/partners", "x-user", "anyone")
			if got.status != http.StatusOK || got.header.Get("x-evil") != "" {
				t.Errorf("the rules of a file with line breaks in a header came through: %d %v", got.status, got.header)
			}
		})
	}
	w.noErrors(t, "client's value", w.hostileValue)
}

// TestHeadersWithUnderscoresAreRefused: an application may take x_user for x-user, of which Envoy and the rules see
// only one.
func TestHeadersWithUnderscoresAreRefused(t *testing.T) {
	for name, w := range map[string]*world{"envoy.yaml": start(t, setup{}),
		"ext_authz.yaml": startAuthz(t, authzSetup{})} {
		if got := w.get(t, "/", "x_user", "alice"); got.status != http.StatusBadRequest {
			t.Errorf("%s: a header with an underscore is answered with %d, want 400", name, got.status)
		}
	}
}

// hostileValue sends bytes that Go's client would not: a tab, quotes, high bytes, and what looks like an escaped line
// break.
func (w *world) hostileValue(t *testing.T) {
	inside(t, time.Minute)
	for i := range 11 {
		conn := must.Get(net.DialTimeout("tcp", w.envoy.Addr, time.Minute))(t)
		conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nhost: x\r\nx-user: a\"\t%%0d%%0ax-evil: 1\xe2\x80\xa8\xff\r\n"+
			"connection: close\r\n\r\n")
		got, err := http.ReadResponse(bufio.NewReader(conn), nil)
		conn.Close()
		if err != nil {
			t.Fatalf("read the answer: %v", err)
		}
		if got.Header.Get("x-evil") != "" {
			t.Errorf("a client's value wrote a header: %v", got.Header)
		}
		want := http.StatusOK
		if i == 10 {
			want = http.StatusTooManyRequests
		}
		if got.StatusCode != want {
			t.Fatalf("request %d was answered with %d, want %d", i+1, got.StatusCode, want)
		}
	}
}
