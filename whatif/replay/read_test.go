package replay

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// read reads one line.
func read(t *testing.T, m Mapping, line string) (*record, error) {
	t.Helper()
	l := must.Get(m.layout())(t)
	r := new(record)
	return r, r.read(l, line)
}

const istioLine = `[2026-03-01T00:00:00.250Z] "POST /login?x=1 HTTP/2" 429 - via_upstream - "-" 5 19 11 10 ` +
	`"192.0.2.7,10.0.0.1" "curl/8 "x" y" "b9d1-4e" "shop.example" "10.1.2.3:8080" outbound|80||shop.svc ` +
	`10.1.2.2:4000 10.1.2.2:8080 192.0.2.9:5000 outbound_.80 default`

// TestLines reads a line of each format.
func TestLines(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 0, 0, 250e6, time.UTC).UnixMicro()
	for _, c := range []struct {
		name, line                                  string
		method, path, host, forwarded, peer, userAg string
		code                                        int
	}{
		{
			"Envoy's text", `[2026-03-01T00:00:00.250Z] "GET /a?b=c HTTP/1.1" 200 - 0 512 12 11 "192.0.2.7" ` +
				`"Mozilla/5.0 (X11; "q" "r)" "b9d1-4e" "shop.example" "10.1.2.3:8080"`,
			"GET", "/a?b=c", "shop.example", "192.0.2.7", "192.0.2.7", `Mozilla/5.0 (X11; "q" "r)`, 200,
		},
		{
			"without what Envoy does not know",
			`[2026-03-01T00:00:00.250Z] "GET / HTTP/1.1" 0 DC 0 0 0 - "-" "-" "-" "-" "-"`,
			"GET", "/", "", "", "", "", 0,
		},
		{"Istio's text", istioLine, "POST", "/login?x=1", "shop.example", "192.0.2.7,10.0.0.1", "192.0.2.9",
			`curl/8 "x" y`, 429},
		{
			"Istio's JSON", `{"start_time":"2026-03-01T00:00:00.250Z","method":"GET","path":"/a\u002fb",` +
				`"authority":"shop.example","x_forwarded_for":"198.51.100.1, ` +
				`192.0.2.7","downstream_remote_address":"[2001:db8::1]:80","response_code":503,"user_agent":"a\"b",` +
				`"upstream":null}`,
			"GET", "/a/b", "shop.example", "198.51.100.1, 192.0.2.7", "2001:db8::1", `a"b`, 503,
		},
		{
			"Envoy Gateway's JSON", `{":authority":"shop.example","method":"GET","path":"/after",` +
				`"x-envoy-origin-path":"/before","start_time":"2026-03-01T01:00:00.250+01:00",` +
				`"x-forwarded-for":"198.51.100.1,192.0.2.7"}`,
			"GET", "/before", "shop.example", "198.51.100.1,192.0.2.7", "192.0.2.7", "", 0,
		},
		{
			"both addresses", `{"start_time":"2026-03-01T00:00:00.250Z","method":"GET","path":"/",` +
				`"downstream_remote_address":"198.51.100.1:0","downstream_direct_remote_address":"192.0.2.7:80"}`,
			"GET", "/", "", "", "192.0.2.7", "", 0,
		},
		{
			"nginx's main", `192.0.2.9 - ann lee [01/Mar/2026:01:00:00 +0100] "GET /a?b=\"c\x22\\ HTTP/1.1" 200 512 ` +
				`"https://a.example/" "curl/8 \"x\"" "198.51.100.1, 192.0.2.7"`,
			"GET", `/a?b="c"\`, "", "198.51.100.1, 192.0.2.7", "192.0.2.9", `curl/8 "x"`, 200,
		},
		{"common", `2001:db8::1 - - [01/Mar/2026:00:00:00 +0000] "GET /a HTTP/1.1" 404 -`, "GET", "/a", "", "",
			"2001:db8::1", "", 404},
		{"Apache's vhost_combined", `shop.example:443 192.0.2.9 - - [01/Mar/2026:00:00:00 +0000] "POST / HTTP/2.0" ` +
			`200 5 "-" "curl/8"`, "POST", "/", "shop.example", "", "192.0.2.9", "curl/8", 200},
		{"nginx's JSON", `{"time_iso8601":"2026-03-01T00:00:00+00:00","msec":"1772323200.250",` +
			`"remote_addr":"192.0.2.9",` +
			`"request":"GET /a?b=c HTTP/1.1","status":"200","host":"shop.example","http_user_agent":"curl/8"}`,
			"GET", "/a?b=c", "shop.example", "", "192.0.2.9", "curl/8", 200},
		{"seconds since the epoch", `{"ts": 1772323200.25, "method": "GET", "path": "/", "nested": {"a": [1, {"b": ` +
			`[]}, "x"]}}`, "GET", "/", "", "", "", "", 0},
		{"milliseconds", `{"ts": 1772323200250, "method": "GET", "path": "/"}`, "GET", "/", "", "", "", "", 0},
		{"microseconds", `{"ts": "1772323200250000", "method": "GET", "path": "/"}`, "GET", "/", "", "", "", "", 0},
	} {
		agent := "user_agent"
		if strings.Contains(c.name, "nginx") || strings.Contains(c.name, "Apache") {
			agent = "http_user_agent"
		}
		r, err := read(t, Mapping{Headers: []Pair{{"user-agent", agent}}}, c.line)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if strings.Contains(c.line, "/Mar/") {
			r.at += 250e3 // these are whole seconds
		}
		got := []any{r.at, r.values[slotMethod], r.values[slotPath], r.values[slotHost], r.values[slotForwarded],
			r.peer(), r.values[slotExtra], r.code}
		want := []any{at, c.method, c.path, c.host, c.forwarded, c.peer, c.userAg, c.code}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: value %d is %v, want %v", c.name, i, got[i], want[i])
			}
		}
	}
}

func TestFieldsByName(t *testing.T) {
	m := Mapping{Fields: map[string]string{"time": "when", "path": "http.request.path", "user": "jwt.sub"}}
	r, err := read(t, m, `{"when":"2026-03-01T00:00:00Z","start_time":"x","path":"/no",`+
		`"http":{"request":{"path":"/yes"}},"method":"GET","jwt":{"sub":"alice"}}`)
	if err != nil || r.values[slotPath] != "/yes" || r.values[slotUser] != "alice" {
		t.Errorf("path %q and user %q: %v", r.values[slotPath], r.values[slotUser], err)
	}
	_, err = (&Mapping{Fields: map[string]string{"pfad": "x"}}).layout()
	if err == nil || !strings.Contains(err.Error(), `"pfad" is not what a field can be`) {
		t.Errorf("an unknown name of a field: %v", err)
	}
}

// TestBrokenLines: each has its reason, and lines about connections are not broken.
func TestBrokenLines(t *testing.T) {
	for line, want := range map[string]string{
		"hello": "neither JSON nor a text format of Envoy, Istio, nginx or Apache",
		`192.0.2.7 - - [17/Nov/2026:10:11:12 +0000] "GET / HTTP/1.1" 200`:              "no known format",
		`192.0.2.7 - - [17/Nov/2026:10:11:12 +0000] "GET / HTTP/1.1" 200 5 "-" "Mozil`: "the line is cut off",
		`192.0.2.7 - [17/Nov/2026:10:11:12 +0000] "GET / HTTP/1.1" 200 5`:              "no known format",
		`192.0.2.7 - - [17/Foo/2026:10:11:12 +0000] "GET / HTTP/1.1" 200 5`:            "is not a time",
		`{"method":"GET","path":"/","time":"2026-03-01T00:00:00Z","tokens":"many"}`:    "is not a cost",
		`{"method":"GET","path":"/","time":"2026-03-01T00:00:00Z","tokens":-1}`:        "is not a cost",
		`{"a":1`:                      "must be one object of JSON",
		`{"a" 1}`:                     "must be one object of JSON",
		`{"a":01}`:                    "must be one object of JSON",
		`{"a":1}x`:                    "must be one object of JSON",
		"{\"a\":\"\x01\"}":            "must be one object of JSON",
		`{}`:                          "no field holds the time, method or path",
		`{"method":"GET","path":"/"}`: "the time is missing",
		`{"method":"GET","path":"/","time":"yesterday"}`:                               `"yesterday" is not a time`,
		`{"method":"GET","path":"/","time":-5}`:                                        `"-5" is not a time`,
		`{"method":"GET","path":"/","time":"9999-01-01T00:00:00Z"}`:                    "is not a time",
		`[2026-03-01T00:00:00Z] "GET / HTTP/1.1" 200 - 0 512 12 11 "192.0.2.7" "Mozil`: "the line is cut off",
		`[2026-03-01T00:00:00Z] "GET / HTTP/1.1" 200 - 0 512 12`:                       "the line is cut off",
		`[2026-03-01T00:00:00Z] "GET / HTTP/1.1" 200 - 0 "192.0.2.7" "M" "r" "h" "u"`:  "neither Envoy's nor Istio's",
		`[2026-03-01T00:00:00Z`: "the line is cut off",
		strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100): "too many objects within each other",
	} {
		_, err := read(t, Mapping{Fields: map[string]string{"cost": "tokens"}}, line)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nis broken by %v\nwant         %s", line, err, want)
		}
	}
	for _, line := range []string{
		`[2026-03-01T00:00:00Z] "- - -" 0 - 5 19 11 - "-" "-" "-" "-" "10.1.2.3:80"`,
		`192.0.2.7 - - [17/Nov/2026:10:11:12 +0000] "\x16\x03\x01\x00" 400 157 "-" "-"`,
		`192.0.2.7 - - [17/Nov/2026:10:11:12 +0000] "-" 400 0 "-" "-"`,
	} {
		_, err := read(t, Mapping{}, line)
		if !errors.Is(err, errNoRequest) {
			t.Errorf("a line about a connection: %s: %v", line, err)
		}
	}
}

// FuzzJSON holds the reader to what encoding/json accepts and reads.
func FuzzJSON(f *testing.F) {
	for _, line := range []string{
		`{"path":"/a","n":{"x":1.5e3},"l":[1,"a",{"b":null}]}`, `{"path":"\u00e9\ud83d\ude00\n"}`, `{"path":-0.0}`,
		`{ "path" : true , "a":[ ] }`,
		`{"path":"a","path":"b"}`, "{\"path\":\"\xff\"}", `{"path":1e}`, `{"path":nul}`, `{"":{}}`, `{"path":"\q"}`,
		`{"a":[1,]}`, `{"a":1,}`,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if !strings.HasPrefix(line, "{") || strings.Count(line, "{")+strings.Count(line, "[") > maxDepth {
			return
		}
		l := must.Get((&Mapping{Fields: map[string]string{"user": "path", "path": "-"}}).layout())(t)
		r := &record{values: make([]string, l.slots), ranks: make([]int8, l.slots)}
		err := readJSON(l, r, line)
		if valid := json.Valid([]byte(line)); valid != (err == nil) {
			t.Fatalf("%q: encoding/json finds it valid: %v, and the reader: %v", line, valid, err)
		}
		var want struct{ Path any }
		if err != nil || strings.Count(strings.ToLower(line), "path") != 1 ||
			json.Unmarshal([]byte(line), &want) != nil {
			return
		}
		if text, ok := want.Path.(string); ok && !strings.ContainsRune(text, '�') && text != "-" &&
			r.values[slotUser] != text && strings.Contains(line, `"path"`) {
			t.Errorf("%q: read %q, want %q", line, r.values[slotUser], text)
		}
	})
}

// FuzzLine: no line does more than be refused.
func FuzzLine(f *testing.F) {
	f.Add(istioLine)
	f.Add(`192.0.2.7 - - [17/Nov/2026:10:11:12 +0000] "GET /\x22 HTTP/1.1" 200 5 "-" "curl/8"`)
	f.Add(`{"start_time":"2026-03-01T00:00:00Z","method":"GET","path":"/"}`)
	f.Fuzz(func(t *testing.T, line string) {
		if line == "" {
			return
		}
		r, err := read(t, Mapping{}, line)
		if err == nil {
			r.peer()
		}
	})
}
