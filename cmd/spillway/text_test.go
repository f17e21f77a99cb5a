package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/descriptors"
)

// TestATerminalTakesNoOrders: what clients choose, such as a user's name, reaches the terminal without control characters.
func TestATerminalTakesNoOrders(t *testing.T) {
	evil := "\x1b[2J\x1b]0;gone\a\r\nroot"
	one, counter := 0, admin.CounterView{Rule: evil, Key: evil, At: evil, Unknown: evil}
	var b strings.Builder
	showTop(&b, &admin.TopView{Missing: []string{evil}, Asked: []live.Ranked{{Domain: evil, Rule: evil, Key: evil}}})
	showFleet(&b, &admin.FleetView{Rules: []string{evil}, Sidecars: []admin.SidecarView{{ID: evil, Host: evil, Version: evil, Degraded: []string{evil}}}})
	showRules(&b, &admin.RulesView{Domains: []admin.DomainView{{Name: evil, Limits: []admin.RuleView{{Rule: evil, Name: evil, Reason: evil}}}}})
	record := &admin.RecordView{Tier: evil, Note: evil, By: evil, Block: &admin.BlockView{Reason: evil}}
	whom := admin.Whom{Domain: evil, User: evil}
	showUsage(&b, &admin.UsageView{
		Identity: admin.HolderRequest{Whom: whom}, Record: record, Counters: []admin.CounterView{counter},
		Unlisted: []descriptors.Unlisted{{Rule: evil}},
	})
	showRecordChange(&b, &admin.RecordChange{Identity: whom, Before: record, After: record, Warnings: []string{evil}})
	showCountersChange(&b, &admin.CountersChange{Before: []admin.CounterView{counter}, After: []admin.CounterView{counter}})
	showExplained(&b, &admin.Explained{
		Domain: evil, Client: &admin.ClientView{User: evil, APIKey: evil}, Attributes: []admin.AttributeView{{Name: evil, Value: evil, Descriptor: &one}},
		Readings: []string{evil, evil}, Considered: []admin.ConsideredView{{Name: evil, Because: evil}}, Charges: []admin.ChargeView{{Key: evil, Degraded: evil}},
		Verdict: admin.VerdictView{Rule: evil, Reason: evil, Degraded: evil}, Answers: admin.AnswersView{RLS: []byte(`{"a":"\u001b[2J"}`)},
	})
	for _, r := range b.String() {
		if r < ' ' && r != '\n' || r == 0x7f {
			t.Fatalf("%q is in what is printed:\n%q", r, b.String())
		}
	}
	if !strings.Contains(b.String(), `\x1b[2J`) {
		t.Error("the name is not shown")
	}
}

func TestSpansAreShort(t *testing.T) {
	for seconds, want := range map[float64]string{0: "now", 0.0001: "1ms", 0.25: "250ms", 3.24: "3.2s", 60: "1m", 3600: "1h", 90: "1m30s", 86400: "24h", 7260: "2h1m"} {
		if got := span(seconds); got != want {
			t.Errorf("%v s: %q, want %q", seconds, got, want)
		}
	}
	if got := instant(time.Time{}); got != "" {
		t.Errorf("no time: %q", got)
	}
}

func TestAMisspelledCommandIsSuggested(t *testing.T) {
	for spelled, says := range map[string]string{"bloc": "did you mean block", "explian": "did you mean explain", "qqqqqqq": "spillway --help lists them"} {
		if got := call("", spelled); got.code != exitUsage || !strings.Contains(got.errors, says) {
			t.Errorf("spillway %s: %+v, want %q", spelled, got, says)
		}
	}
}

func TestArgumentsAreCounted(t *testing.T) {
	for line, says := range map[string]string{
		"diff one": "it is spillway diff OLD NEW", "usage extra": `"extra" is too much`, "replay": "an argument is missing", "explain /a /b": `"/b" is too much`,
	} {
		if got := call("", strings.Fields(line)...); got.code != exitUsage || !strings.Contains(got.errors, says) {
			t.Errorf("spillway %s: %+v, want %q", line, got, says)
		}
	}
}

func TestAnExplanationSaysWhatTheRequestLacks(t *testing.T) {
	var b strings.Builder
	showExplained(&b, &admin.Explained{Client: &admin.ClientView{Evidence: "ip"}, Verdict: admin.VerdictView{Outcome: "unknown_domain", Status: 200}})
	for _, says := range []string{"names no domain", "an unknown client"} {
		if !strings.Contains(b.String(), says) {
			t.Errorf("%q is missing:\n%s", says, b.String())
		}
	}
}

func TestLimitsAreReadAsInARuleFile(t *testing.T) {
	for text, says := range map[string]string{
		"100": "COUNT/PER", "x/1m": "COUNT/PER", "1/1m,burst=x": "whole number", "1/1m,speed=2": "one of burst", "1/1m,burst": "whole number",
	} {
		if _, err := parseLimit(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	got, err := parseLimit("5000/1d,algorithm=fixed_window,name=daily")
	if err != nil || got["count"] != int64(5000) || got["per"] != "1d" || got["algorithm"] != "fixed_window" || got["name"] != "daily" {
		t.Errorf("%v (%v)", got, err)
	}
}

// TestNoFieldOfAnAnswerReachesATerminalRaw serves answers whose every text is hostile, to all commands that ask a
// sidecar.
func TestNoFieldOfAnAnswerReachesATerminalRaw(t *testing.T) {
	const evil = "\x1b[31m \x1b]0;t\a \u202e \r \u009b31m"
	poison, err := json.Marshal(evil)
	if err != nil {
		t.Fatal(err)
	}
	text := string(poison)
	for _, status := range []int{http.StatusOK, http.StatusForbidden} {
		sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("content-type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"hash":%[1]s,"title":%[1]s,"detail":%[1]s,
				"domains":[{"name":%[1]s,"limits":[{"rule":%[1]s,"name":%[1]s,"scope":%[1]s,"reason":%[1]s}]}],
				"identity":{"domain":%[1]s,"user":%[1]s},"record":{"tier":%[1]s,"note":%[1]s,"by":%[1]s},
				"rules":[%[1]s],"missing":[%[1]s],"readings":[%[1]s],
				"sidecars":[{"id":%[1]s,"host":%[1]s,"version":%[1]s,
				"rules":%[1]s,"degraded":[%[1]s],"domains":[%[1]s]}]}`, text)
		}))
		for _, words := range [][]string{{"rules"}, {"fleet"}, {"top"}, {"usage", "--domain", "d", "--user", "u"}} {
			var out, diagnostics bytes.Buffer
			run(append(words, "--server", sidecar.URL), strings.NewReader(""), &out, &diagnostics)
			for _, raw := range []string{"\x1b", "\a", "\r", "\u202e", "\u009b"} {
				if strings.Contains(out.String()+diagnostics.String(), raw) {
					t.Errorf("%v, answered with %d, writes %q:\n%q", words, status, raw,
						out.String()+diagnostics.String())
				}
			}
		}
		sidecar.Close()
	}
}
