package replay

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/whatif"
)

// write puts a text into a file.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

const twoAMinute = `domain: shop
rules:
  - { name: per-user, scope: user, limit: 2/1m }
  - { name: per-address, scope: ip, limit: { count: 3, per: 1h, algorithm: fixed_window } }
  - { name: trial, scope: global, limit: 5/1h, action: log_only }
  - { name: abuse, match: { users: [mallory] }, action: block }
`

// at writes a line: seconds after midnight, user, address, path.
func at(seconds float64, user, address, path string) string {
	when := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
	return fmt.Sprintf(`{"start_time":%q,"method":"GET","path":%q,"user":%q,"downstream_remote_address":"%s:80",`+
		`"response_code":200}`+"\n", when.Format(time.RFC3339Nano), path, user, address)
}

func replayed(t *testing.T, cfg Config) *Report {
	t.Helper()
	cfg.Mapping.Fields = map[string]string{"user": "user"}
	r := must.Get(Run(cfg))(t)
	return r
}

// TestReportNamesWhoWhenAndWhy replays a log that every rule has something to do with.
func TestReportNamesWhoWhenAndWhy(t *testing.T) {
	log := at(0, "alice", "192.0.2.1", "/") + at(1, "alice", "192.0.2.2", "/") + at(2, "alice", "192.0.2.3", "/") +
		at(40, "alice", "192.0.2.4", "/") +
		at(50, "mallory", "192.0.2.9", "/") + at(60, "", "192.0.2.5", "/") + at(60, "", "192.0.2.5", "/") +
		at(60, "", "192.0.2.5", "/") + at(61, "", "192.0.2.5", "/") +
		at(62, "bob", "192.0.2.6", "/")
	var refusals []Refusal
	r := replayed(t, Config{
		Logs: []string{write(t, "access.log", log)}, Rules: []string{write(t, "rules.yaml", twoAMinute)},
		OnRefusal: func(one Refusal) error { refusals = append(refusals, one); return nil },
	})
	midnight := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	second := func(n int) time.Time { return midnight.Add(time.Duration(n) * time.Second) }
	want := []Limited{
		{Who: "ip 192.0.2.5", Rule: "per-address", Requests: 1, First: second(61), Last: second(61)},
		{Who: "user alice", Rule: "per-user", Requests: 1, First: second(2), Last: second(2)},
		{Who: "user mallory", Rule: "abuse", Requests: 1, First: second(50), Last: second(50)},
	}
	if diff := cmp.Diff(want, r.Rules.Who); diff != "" {
		t.Errorf("who is refused (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"allowed": 7, "refused": 2, "blocked": 1}, r.Rules.Outcomes); diff != "" ||
		r.Rules.Refused != 3 {
		t.Errorf("%d refused (-want +got):\n%s", r.Rules.Refused, diff)
	}
	shadowed := map[string]int64{}
	for _, rule := range r.Rules.Rules {
		shadowed[rule.Rule] = rule.Shadowed
	}
	if shadowed["trial"] != 3 || shadowed["per-user"] != 0 {
		t.Errorf("rules that are only logged would have refused %v, want 3 by trial", shadowed)
	}
	if len(refusals) != 3 || refusals[0].Who != "user alice" || refusals[0].RetryAfter != 28 ||
		refusals[1].Outcome != "blocked" {
		t.Errorf("refusals as they happen: %+v", refusals)
	}
	if !r.Log.From.Equal(midnight) || !r.Log.To.Equal(second(62)) || r.Log.Requests != 10 {
		t.Errorf("the log: %+v", r.Log)
	}
	var text strings.Builder
	err := r.WriteText(&text, 2)
	line := "  refused          ..█" + strings.Repeat(".", 47) + "█..........█.  at most 1\n"
	if err != nil || !strings.Contains(text.String(), line) || !strings.Contains(text.String(), "and 1 others") {
		t.Errorf("the text lacks %q: %v\n%s", line, err, text.String())
	}
	if p := r.Timeline.Points; len(p) != 63 || p[2].Refused != 1 || p[60].Requests != 3 ||
		p[61].Rules["per-address"] != 1 {
		t.Errorf("the timeline: %+v", r.Timeline)
	}
}

// TestLinesInAnotherOrder: Envoy writes a line when a request ends, and several Envoys write several logs.
func TestLinesInAnotherOrder(t *testing.T) {
	early, late := at(0, "alice", "192.0.2.1", "/")+at(1, "alice", "192.0.2.1", "/"), at(2, "alice", "192.0.2.1",
		"/late")
	rules := []string{write(t, "rules.yaml", twoAMinute)}
	for name, logs := range map[string][]string{
		"in one log": {write(t, "a.log", late+early)}, "in two": {write(t, "b.log", late), write(t, "c.log", early)},
	} {
		var refused []string
		replayed(t, Config{Logs: logs, Rules: rules, OnRefusal: func(one Refusal) error {
			refused = append(refused,
				one.Path)
			return nil
		}})
		if diff := cmp.Diff([]string{"/late"}, refused); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	r := replayed(t, Config{Logs: []string{write(t, "d.log",
		at(5, "a", "192.0.2.1", "/")+at(6, "a", "192.0.2.1", "/")+at(7, "b", "192.0.2.1", "/")+at(0, "b", "192.0.2.1",
			"/"))}, Rules: rules, Reorder: 1})
	if r.Log.Late != 1 || r.Log.Requests != 4 {
		t.Errorf("%d requests are late of %d, want 1 of 4", r.Log.Late, r.Log.Requests)
	}
}

func pack(t *testing.T, text string) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write([]byte(text))
	w.Close()
	return packed.String()
}

// TestCompressedAndStandardInput: how the log comes does not matter, and one that is cut off is reported.
func TestCompressedAndStandardInput(t *testing.T) {
	log := strings.Repeat(at(0, "alice", "192.0.2.1", "/"), 3)
	rules := []string{write(t, "rules.yaml", twoAMinute)}
	for name, cfg := range map[string]Config{
		"plain": {Logs: []string{write(t, "a.log", log)}}, "gzip": {Logs: []string{write(t, "a.gz", pack(t, log))}},
		"two in one gzip": {
			Logs: []string{write(t, "b.gz", pack(t, log[:len(log)/3])+pack(t, log[len(log)/3:]))}},
		"standard input":         {Logs: []string{"-"}, In: strings.NewReader(log)},
		"gzip on it":             {Logs: []string{"-"}, In: strings.NewReader(pack(t, log))},
		"without a last newline": {Logs: []string{"-"}, In: strings.NewReader(strings.TrimSpace(log))},
	} {
		cfg.Rules = rules
		r := replayed(t, cfg)
		if r.Log.Requests != 3 || r.Rules.Refused != 1 || r.Log.Broken != 0 {
			t.Errorf("%s: %d requests, %d refused, %d broken", name, r.Log.Requests, r.Rules.Refused, r.Log.Broken)
		}
	}
	packed := pack(t, log)
	r := replayed(t, Config{Logs: []string{write(t, "cut.gz", packed[:len(packed)-9])}, Rules: rules})
	if r.Log.Broken != 1 || !strings.Contains(r.Log.Samples[0].Reason,
		"the log cannot be read further: unexpected EOF") {
		t.Errorf("a log that is cut off: %+v", r.Log)
	}
}

// TestBrokenLinesAreCountedShownAndSkipped has more of them than a report shows.
func TestBrokenLinesAreCountedShownAndSkipped(t *testing.T) {
	log := at(0, "alice", "192.0.2.1", "/") + "\n" + strings.Repeat("bro\x1bken\n", 30) + "{" +
		strings.Repeat("x", 3<<20) + "\n" +
		`{"start_time":"2026-03-01T00:00:00Z","protocol":null}` + "\n" + at(1, "alice", "192.0.2.1", "/")
	r := replayed(t, Config{Logs: []string{write(t, "a.log", log)},
		Rules: []string{write(t, "rules.yaml", twoAMinute)}})
	if r.Log.Requests != 2 || r.Log.Broken != 31 || r.Log.Skipped != 1 || r.Log.Lines != 35 ||
		len(r.Log.Samples) != maxSamples {
		t.Errorf("%d requests, %d broken, %d skipped in %d lines, %d shown", r.Log.Requests, r.Log.Broken,
			r.Log.Skipped, r.Log.Lines, len(r.Log.Samples))
	}
	if s := r.Log.Samples[0]; s.Line != 3 || s.Text != `"bro\x1bken"` {
		t.Errorf("the first one: %+v", s)
	}
	var text strings.Builder
	err := r.WriteText(&text, 5)
	if err != nil || !strings.Contains(text.String(), "broken lines, which were skipped: 31") ||
		strings.Contains(text.String(), "\x1b") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// TestAgainstTellsTheDifference compares two a minute with one a minute for those of the first path alone.
func TestAgainstTellsTheDifference(t *testing.T) {
	other := "domain: shop\nrules:\n  - { name: first, scope: user, match: { endpoints: [/first] }, limit: 1/1m }\n"
	log := at(0, "alice", "192.0.2.1", "/first") + at(1, "alice", "192.0.2.2", "/first") +
		at(2, "alice", "192.0.2.3", "/first") +
		at(3, "bob", "192.0.2.4", "/") + at(4, "bob", "192.0.2.5", "/") + at(5, "bob", "192.0.2.6", "/")
	r := replayed(t, Config{Logs: []string{write(t, "a.log", log)}, Rules: []string{write(t, "a.yaml", twoAMinute)},
		Against: []string{write(t, "b.yaml", other)}})
	c := r.Changes
	got := []int64{c.RefusedByBoth, c.OtherRule, c.RefusedByNeither, c.NewlyRefused, c.NewlyAdmitted}
	if diff := cmp.Diff([]int64{1, 1, 3, 1, 1}, got); diff != "" {
		t.Errorf("both, of them by another rule, neither, newly refused, newly admitted (-want +got):\n%s", diff)
	}
	if len(c.Limited) != 1 || c.Limited[0].Who != "user alice" || c.Limited[0].Rule != "first" || len(c.Freed) != 1 ||
		c.Freed[0].Who != "user bob" {
		t.Errorf("who: %+v", c)
	}
	if *r.Timeline.Points[1].Against != 1 || r.Timeline.Points[1].Refused != 0 {
		t.Errorf("the timeline: %+v", r.Timeline.Points)
	}
}

// TestDescriptorsOfTheLog asks as Envoy's rate limit filter does.
func TestDescriptorsOfTheLog(t *testing.T) {
	tree := "domain: edge\ndescriptors:\n  - key: route\n    value: login\n    descriptors:\n      - key: user\n" +
		"        rate_limit: { unit: hour, requests_per_unit: 1 }\n"
	log := strings.Repeat(at(0, "alice", "192.0.2.1", "/"), 3) + strings.Repeat(at(0, "", "192.0.2.1", "/"), 3)
	m := Mapping{Descriptors: [][]Part{{{Key: "route", Text: "login"}, {Key: "user", Field: "user"}},
		{{Key: "none", Field: "nothing"}}}}
	r := replayed(t, Config{Logs: []string{write(t, "a.log", log)}, Rules: []string{write(t, "a.yaml", tree)},
		Mapping: m})
	if r.Rules.Refused != 2 || len(r.Rules.Who) != 1 || r.Rules.Who[0].Who != "route login, user alice" {
		t.Errorf("%d refused: %+v", r.Rules.Refused, r.Rules.Who)
	}
	if diff := cmp.Diff([]string{"nothing (descriptor entry none)"}, r.Log.Missing); diff != "" {
		t.Errorf("fields that no line has (-want +got):\n%s", diff)
	}
}

// TestTheCounterThatRefusesIsNamed has two descriptors for one node: that of bob, who is in each request, is over.
func TestTheCounterThatRefusesIsNamed(t *testing.T) {
	log := ""
	for i := range 6 {
		log += at(float64(i), fmt.Sprint("alice", i), "192.0.2.1", "/")
	}
	rules := write(t, "a.yaml",
		"domain: s\ndescriptors:\n  - key: user\n    rate_limit: { unit: minute, requests_per_unit: 2 }\n")
	m := Mapping{Descriptors: [][]Part{{{Key: "user", Field: "user"}}, {{Key: "user", Text: "bob"}}}}
	r := replayed(t, Config{Logs: []string{write(t, "a.log", log)}, Rules: []string{rules}, Mapping: m})
	if who := r.Rules.Who; len(who) != 1 || who[0].Who != "user bob" || who[0].Requests != 4 {
		t.Errorf("bob alone is over, 4 times: %+v", who)
	}
	if n := r.Rules.Rules[0].Counted; n != 6 {
		t.Errorf("the rule counted %d of 6 requests", n)
	}
}

// TestBoundsHoldWhateverTheLog: many clients, over a long time, in little memory.
func TestBoundsHoldWhateverTheLog(t *testing.T) {
	const clients = 5000
	var log strings.Builder
	for i := range 2 * clients {
		client := i % clients
		log.WriteString(at(float64(i)*30, "", fmt.Sprintf("10.%d.%d.1", client/250%250, client%250), "/"))
	}
	rules := write(t, "a.yaml",
		"domain: shop\nrules:\n  - { name: a, scope: ip, limit: { count: 1, per: 365d, algorithm: fixed_window } }\n")
	cfg := Config{Logs: []string{write(t, "a.log", log.String())}, Rules: []string{rules}, MaxBytes: 128 << 10}
	if r := replayed(t, cfg); r.Rules.Evicted == 0 || r.Rules.Refused >= clients {
		t.Errorf("in little memory %d are refused, and %d counters forgotten", r.Rules.Refused, r.Rules.Evicted)
	}
	cfg.MaxBytes = 0
	r := replayed(t, cfg)
	if r.Rules.Refused != clients || r.Rules.Evicted != 0 {
		t.Errorf("%d refused, %d counters forgotten", r.Rules.Refused, r.Rules.Evicted)
	}
	if len(r.Rules.Who) != maxWho || !r.Rules.WhoIncomplete || r.Rules.Who[0].Over == 0 {
		t.Errorf("%d are named, incomplete %v: %+v", len(r.Rules.Who), r.Rules.WhoIncomplete, r.Rules.Who[0])
	}
	total := int64(0)
	for _, p := range r.Timeline.Points {
		total += p.Rules["a"]
	}
	if len(r.Timeline.Points) > maxBuckets || len(r.Timeline.Points) < maxBuckets/2 || total != clients {
		t.Errorf("%d points count %d refusals", len(r.Timeline.Points), total)
	}
}

func TestRulesThatDoNotLoadRunNothing(t *testing.T) {
	bad := write(t, "bad.yaml", "domain: shop\nrules:\n  - { name: a, scope: users, limit: 1/1m }\n")
	worse := write(t, "worse.yaml", "domain: shop\nrulez: []\n")
	_, err := Run(Config{Logs: []string{"none.log"}, Rules: []string{bad}, Against: []string{worse}})
	var unloadable *whatif.Unloadable
	if !errors.As(err, &unloadable) || !strings.Contains(err.Error(), `"users"`) ||
		!strings.Contains(err.Error(), `"rulez"`) {
		t.Errorf("the problems of both sets are: %v", err)
	}
	_, err = Run(Config{Logs: []string{"none.log"}, Rules: []string{write(t, "a.yaml", twoAMinute)}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
	_, err = Run(Config{Logs: []string{t.TempDir()}, Rules: []string{write(t, "a.yaml", twoAMinute)}})
	if err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("a folder: %v", err)
	}
}

// TestReportIsPlainData: what programs read is what was counted, and an empty log has a report too.
func TestReportIsPlainData(t *testing.T) {
	r := replayed(t, Config{Logs: []string{write(t, "a.log", "")}, Rules: []string{write(t, "a.yaml", twoAMinute)},
		Against: []string{write(t, "a.yaml", twoAMinute)}})
	text := must.Get(json.Marshal(r))(t)
	var back Report
	err := json.Unmarshal(text, &back)
	if err != nil || back.Log.Requests != 0 {
		t.Errorf("%v: %s", err, text)
	}
	var page, plain strings.Builder
	err = errors.Join(r.WriteHTML(&page), r.WriteText(&plain, 5))
	if err != nil || !strings.Contains(page.String(), "0 requests in 0 lines") ||
		!strings.Contains(plain.String(), "0 of 0 requests refused") {
		t.Errorf("%v: %s", err, plain.String())
	}
}

// TestPageHoldsTextsOfClientsAsText: a log is written by clients.
func TestPageHoldsTextsOfClientsAsText(t *testing.T) {
	evil := `<script>alert(1)</script><img src=x onerror=alert(2)>`
	r := replayed(t, Config{Logs: []string{write(t, "a.log",
		strings.Repeat(at(0, evil, "192.0.2.1", "/"), 5)+evil+"\n")}, Rules: []string{write(t, "a.yaml", twoAMinute)}})
	var page strings.Builder
	must.Do(t, r.WriteHTML(&page))
	if strings.Contains(page.String(), "<script") || strings.Contains(page.String(), "<img") ||
		!strings.Contains(page.String(), "&lt;script&gt;alert(1)") {
		t.Error("a text of a client is part of the page's markup")
	}
}
