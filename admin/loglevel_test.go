package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// level is a log whose level becomes what is set, unless that is loud.
type level struct{ now string }

func (l *level) handler() http.Handler {
	return Debug{
		Rules: noRules, Stats: oneLine, Metrics: teapot, API: teapot,
		Level: LogLevel{Get: func() string { return l.now }, Set: func(name string) error {
			if name == "loud" {
				return errors.New("no such level")
			}
			l.now = name
			return nil
		}},
	}.Handler()
}

// ask sends a request for the level from an address.
func (l *level) ask(method, body, from string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/loglevel", strings.NewReader(body))
	r.RemoteAddr = from
	l.handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestTheLevelIsShownAndChanged(t *testing.T) {
	for _, c := range []struct {
		name, method, body, from string
		code                     int
		after                    string
	}{
		{"shown", "GET", "", "10.0.0.9:1234", 200, "info"},
		{"changed", "PUT", "debug\n", "127.0.0.1:1234", 200, "debug"},
		{"changed over IPv6", "PUT", "debug", "[::1]:1234", 200, "debug"},
		{"changed over mapped IPv4", "PUT", "debug", "[::ffff:127.0.0.1]:1234", 200, "debug"},
		{"changed from elsewhere", "PUT", "debug", "10.0.0.9:1234", 403, "info"},
		{"changed from nowhere", "PUT", "debug", "@", 403, "info"},
		{"changed to what is none", "PUT", "loud", "127.0.0.1:1234", 400, "info"},
		{"posted", "POST", "debug", "127.0.0.1:1234", 405, "info"},
	} {
		l := &level{now: "info"}
		code, body := l.ask(c.method, c.body, c.from)
		if code != c.code || l.now != c.after {
			t.Errorf("%s: answered %d %q, and the level is %s, want %d and %s", c.name, code, body, l.now, c.code,
				c.after)
		}
		if code == 200 && body != c.after+"\n" {
			t.Errorf("%s: the page says %q, want %q", c.name, body, c.after)
		}
	}
}

func TestAPageInABrowserDoesNotChangeTheLevel(t *testing.T) {
	l := &level{now: "info"}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("PUT", "http://rebound.example/loglevel", strings.NewReader("debug"))
	r.RemoteAddr = "127.0.0.1:1234"
	r.Header.Set("Origin", "http://rebound.example")
	l.handler().ServeHTTP(w, r)
	if w.Code != 403 || l.now != "info" {
		t.Errorf("answered %d %q, and the level is %s, want 403 and info", w.Code, w.Body, l.now)
	}
}
