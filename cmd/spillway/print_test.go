package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// evil is a text by which a client would move the cursor, set the title or turn the line around.
const evil = "\x1b[2J\x1b]0;gone\a \u202e \r\n \u009b31m \U000e0001"

// hostile is a value whose every text is evil: for each field that a table or a function of the command reads.
func hostile(depth int) any {
	if depth == 0 {
		return evil
	}
	o := object{"id": json.Number("1"), "version": json.Number("1"), "state": "done", "in_force": true,
		"verdict": object{"outcome": evil}}
	for _, n := range nouns() {
		for _, c := range slices.Concat(n.columns, n.facts) {
			if o[c.field] == nil && c.field != "" && !strings.Contains(c.field, ".") {
				o[c.field] = evil
			}
		}
		o[n.field()] = []any{hostile(depth - 1), hostile(depth - 1)}
	}
	for _, name := range []string{
		"domains", "limits", "sidecars", "counters", "unlisted", "before", "after", "asked", "refused", "charges",
		"considered", "attributes", "places", "points", "warnings", "readings", "rows",
	} {
		o[name] = []any{hostile(depth - 1), hostile(depth - 1)}
	}
	for _, name := range []string{"identity", "record", "client", "answers", "today", "month", "latency", "limit",
		"block"} {
		o[name] = hostile(depth - 1)
	}
	for _, name := range []string{"text", "timezone", "question", "cause", "beaten_by", "pattern", "key", "value",
		"columns"} {
		o[name] = evil
	}
	return o
}

// raw are characters that no output may hold.
func raw(r rune) bool {
	return r < ' ' && r != '\n' || r == 0x7f || r == 0x9b || r == 0x202e || r == 0xe0001
}

// TestNoFieldOfAnAnswerReachesATerminalRaw serves answers whose every text is hostile, to all commands that ask a
// server.
func TestNoFieldOfAnAnswerReachesATerminalRaw(t *testing.T) {
	body, err := json.Marshal(hostile(2))
	if err != nil {
		t.Fatal(err)
	}
	var status int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		if status != http.StatusOK {
			body, _ = json.Marshal(map[string]string{"detail": evil})
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
	for _, status = range []int{http.StatusOK, http.StatusForbidden} {
		for _, line := range []string{
			"users list --limit 1", "users show a", "tiers list", "keys list --limit 1", "keys show a",
			"blocks list --limit 1", "counters list a", "counters reset a", "top", "explain /", "sidecars list",
			"rules show", "rules show @1", "rules list --limit 1", "usage show a", "usage list",
			"events list --limit 1", "audit list --limit 1", "reports list", "reports show a",
			"erasures list --limit 1", "erasures show 1", "doctor",
		} {
			for _, format := range []string{"wide", "json", "yaml"} {
				args := append(strings.Fields(line), "--domain", "d", "-o", format, "--server", server.URL,
					"--control", server.URL)
				got := call("", args...)
				if at := strings.IndexFunc(got.out+got.errors, raw); at >= 0 {
					t.Errorf("%s -o %s, answered with %d, writes %q", line, format, status,
						(got.out + got.errors)[max(at-40, 0):at+4])
				}
				if got.code == exitUsage {
					t.Errorf("%s is not understood: %s", line, got.errors)
				}
			}
		}
	}
}

// TestFormats prints the same rows in each format: programs read the texts as they are.
func TestFormats(t *testing.T) {
	server := answering(t, map[string]string{"/v1/domains/d/users": `{"users":[{"name":"` + `a\u001b\u202e` +
		`","quota_day":9007199254740993}]}`})
	ask := func(format string) string {
		return call("", "users", "list", "--domain", "d", "--control", server, "-o", format).out
	}
	var view struct{ Users []struct{ Name string } }
	if err := json.Unmarshal([]byte(ask("json")), &view); err != nil || view.Users[0].Name != "a\x1b\u202e" {
		t.Errorf("JSON: %v, %+v", err, view)
	}
	view.Users = nil
	if err := yaml.Unmarshal([]byte(ask("yaml")), &view); err != nil || view.Users[0].Name != "a\x1b\u202e" {
		t.Errorf("YAML: %v, %+v:\n%s", err, view, ask("yaml"))
	}
	if got := ask("table"); !strings.Contains(got, "9007199254740993") || strings.Contains(got, "CHANGED BY") {
		t.Errorf("a table without the columns of wide, and with whole numbers:\n%s", got)
	}
	if got := ask("wide"); !strings.Contains(got, "CHANGED BY") {
		t.Errorf("-o wide lacks columns:\n%s", got)
	}
}

// answering is a server of documents by path. It fails the test at other paths.
func answering(t *testing.T, pages map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pages[r.URL.Path] == "" {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"detail":"there is no %s"}`, r.URL.Path)
			return
		}
		fmt.Fprint(w, pages[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestANarrowTerminal: a column is cut where there is room for it, those behind it are left out, and none with -o wide.
func TestANarrowTerminal(t *testing.T) {
	rows := []object{{"a": "1234", "b": "1234", "c": "refused", "d": "0123456789abcdef"}}
	const all = "A     B     C        D\n1234  1234  refused  0123456789abcdef\n"
	for _, c := range []struct {
		width  int
		format string
		colour bool
		want   string
	}{
		{0, "table", false, all},
		{37, "table", false, all},
		{36, "table", false, "A     B     C        D\n1234  1234  refused  0123456789abcd…\n"},
		{33, "table", false, "A     B     C        D\n1234  1234  refused  0123456789a…\n"},
		{32, "table", false, "A     B     C\n1234  1234  refused\n"},
		{18, "table", false, "A     B\n1234  1234\n"},
		{2, "table", false, "A\n1234\n"},
		{2, "wide", false, all},
		{20, "table", true,
			"\x1b[1mA\x1b[0m     \x1b[1mB\x1b[0m     \x1b[1mC\x1b[0m\n1234  1234  \x1b[31mrefused\x1b[0m\n"},
	} {
		var out strings.Builder
		p := &printer{out: cleaned{to: &out}, raw: &out, format: c.format, width: c.width, colour: c.colour}
		if p.table(rows, columns("A a | B b | C c state | D d")); out.String() != c.want {
			t.Errorf("%d %s: %q, want %q", c.width, c.format, out.String(), c.want)
		}
	}
}

// TestWatchRepeats prints a list until the server refuses.
func TestWatchRepeats(t *testing.T) {
	left := 3
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if left--; left < 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"detail":"over"}`)
			return
		}
		fmt.Fprint(w, `{"tiers":[{"name":"gold"}]}`)
	}))
	defer server.Close()
	got := call("", "tiers", "list", "--domain", "d", "--control", server.URL, "--watch=1ms")
	if got.code != exitServer || strings.Count(got.out, "gold") != 3 || !strings.Contains(got.errors, "over") {
		t.Errorf("%+v", got)
	}
}

// TestEventsAreFollowed prints refusals of a sidecar's stream until it ends.
func TestEventsAreFollowed(t *testing.T) {
	const described = `{"at":"2026-11-19T10:00:00Z","domain":"d","outcome":"refused","entries":{"user":"ann"}}`
	server := answering(t, map[string]string{"/v1/events": ": refusals follow\n\ndata: " + described + "\n\ndata: " +
		`{"at":"2026-11-19T10:00:00.5Z","domain":"d","outcome":"refused","rule":"r","user":"a\u001b",` +
		`"method":"GET","path":"/x"}` +
		"\n\nevent: dropped\ndata: {\"count\":7}\n\n"})
	got := call("", "events", "list", "-f", "--server", server)
	for _, want := range []string{
		`2026-11-19T10:00:00Z  refused  d  user "a\x1b"  rule r  GET /x`, "d  user=ann  rule -",
		"7 refusals are not shown",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is missing:\n%s", want, got.out)
		}
	}
	if got.code != exitServer || !strings.Contains(got.errors, "has ended the stream") {
		t.Errorf("at the end: %+v", got)
	}
	if got := call("", "events", "list", "-f", "--outcome", "refused", "--server", server); got.code != exitUsage {
		t.Errorf("a filter of the record: %+v", got)
	}
}

// TestEventsOfADomainAreFollowed: the sidecar is asked for one domain alone.
func TestEventsOfADomainAreFollowed(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
	}))
	defer server.Close()
	call("", "events", "list", "-f", "--domain", "shop", "--server", server.URL)
	if asked != "/v1/events?domain=shop" {
		t.Errorf("%s is asked for", asked)
	}
}

// TestListsFit80Columns: each list, with names as long as they get, keeps to the terminal and shows two columns of it.
func TestListsFit80Columns(t *testing.T) {
	for _, n := range nouns() {
		row := object{}
		for _, c := range n.columns {
			row[c.field] = strings.Repeat("x", 60)
		}
		if len(n.columns) < 2 {
			continue
		}
		var out strings.Builder
		p := &printer{out: cleaned{to: &out}, raw: &out, format: "table", width: 80}
		p.table([]object{row}, n.columns)
		for line := range strings.Lines(out.String()) {
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > p.width {
				t.Errorf("%s: %d columns: %s", n.name, width, line)
			}
		}
		for _, c := range n.columns[:2] {
			if !strings.Contains(out.String(), c.heading) {
				t.Errorf("%s: no column %s:\n%s", n.name, c.heading, out.String())
			}
		}
	}
}
