package main

import (
	"strings"
	"testing"
)

func TestSpansAreShort(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "now", 0.0001: "1ms", 0.25: "250ms", 3.24: "3.2s", 60: "1m", 3600: "1h", 90: "1m30s", 86400: "24h",
		7260: "2h1m",
	} {
		if got := span(seconds); got != want {
			t.Errorf("%v s: %q, want %q", seconds, got, want)
		}
	}
	if got := when("0001-01-01T00:00:00Z"); got != "" {
		t.Errorf("no time: %q", got)
	}
}

func TestAMisspelledCommandIsSuggested(t *testing.T) {
	for spelled, says := range map[string]string{"bloc": "did you mean block", "explian": "did you mean explain",
		"qqqqqqq": "spillway --help lists them"} {
		if got := call("", spelled); got.code != exitUsage || !strings.Contains(got.errors, says) {
			t.Errorf("spillway %s: %+v, want %q", spelled, got, says)
		}
	}
}

func TestArgumentsAreCounted(t *testing.T) {
	for line, says := range map[string]string{
		"diff one": "it is spillway diff OLD NEW", "top extra": `"extra" is too much`,
		"replay": "an argument is missing", "explain /a /b": `"/b" is too much`,
		"users show": "an argument is missing", "keys rotate one": "an argument is missing",
	} {
		if got := call("", strings.Fields(line)...); got.code != exitUsage || !strings.Contains(got.errors, says) {
			t.Errorf("spillway %s: %+v, want %q", line, got, says)
		}
	}
}

func TestLimitsAreReadAsInARuleFile(t *testing.T) {
	for text, says := range map[string]string{
		"100": "COUNT/PER", "x/1m": "COUNT/PER", "1/1m,burst=x": "whole number", "1/1m,speed=2": "one of burst",
		"1/1m,burst": "whole number",
	} {
		if _, err := readLimit(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	read, err := readLimit("5000/1d,algorithm=fixed_window,name=daily")
	got, _ := read.(object)
	if err != nil || got["count"] != int64(5000) || got["per"] != "1d" || got["algorithm"] != "fixed_window" ||
		got["name"] != "daily" {
		t.Errorf("%v (%v)", got, err)
	}
}

func TestAnExplanationShowsWhatTheRequestLacks(t *testing.T) {
	server := answering(t, map[string]string{
		"/v1/explain": `{"client":{"evidence":"ip"},"verdict":{"outcome":"unknown_domain","status":200}}`,
	})
	got := call("", "explain", "/", "--server", server)
	for _, says := range []string{"unknown_domain (200): the request names no domain", "client: unknown"} {
		if !strings.Contains(got.out, says) {
			t.Errorf("%q is missing: %+v", says, got)
		}
	}
}
