package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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
		"diff one": "the form is spillway diff OLD NEW", "top extra": `"extra" is one argument too many`,
		"replay": "an argument is missing", "explain /a /b": `"/b" is one argument too many: the form is spillway ` +
			`explain [PATH]`,
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

// TestCountersNameWhoTheyCount: the table has whom and what headers call the rule in place of a key of Redis, and says
// what becomes of the counter.
func TestCountersNameWhoTheyCount(t *testing.T) {
	const counter = `{"name":"per-user","rule":"user","key":"rl1:{d|alice}:user:per-user:fw","limit":{},"left":0,` +
		`"who":[{"kind":"user","name":"alice"},{"kind":"endpoint","name":"/x"}],"count":4,"domain":"d",` +
		`"reset_after":960,"state":`
	const blocked = `{"name":"user","rule":"user","key":"mallory","who":[],"count":9,"domain":"d"}`
	server := answering(t, map[string]string{
		"/v1/top": `{"sidecars":1,"refused":[` + counter + `""},` + blocked + `],"asked":[]}`,
		"/v1/usage": `{"identity":{"user":"alice","domain":"d"},"profile":null,"counters":[` + counter + `"ends"},` +
			counter + `"fills"},` + counter + `"full"}]}`,
	})
	for line, lines := range map[string][]string{
		"top":                 {"alice /x  per-user  d", "mallory   user      d"},
		"counters list alice": {"ends in 16m", "full in 16m", "full         per-user  alice /x  no"},
	} {
		got := call("", append(strings.Fields(line), "--server", server)...)
		for _, want := range lines {
			if !strings.Contains(got.out, want) {
				t.Errorf("spillway %s: %q is missing:\n%s%s", line, want, got.out, got.errors)
			}
		}
		if strings.Contains(got.out, "rl1:") {
			t.Errorf("spillway %s shows a key without -o wide:\n%s", line, got.out)
		}
	}
}

// TestASidecarThatIsNotHeard: of such a one only what was heard last is known, and not what is degraded.
func TestASidecarThatIsNotHeard(t *testing.T) {
	for silent, wants := range map[string][]string{
		`,"not_heard_for":12`: {"all with the same rules as last heard\n",
			"b (not heard for 12s)  h     r      -       ?"},
		"": {"all with the same rules\n", "b          h     r      -       -"},
	} {
		server := answering(t, map[string]string{"/v1/sidecars": `{"rules_agree":true,"sidecars":[{` +
			`"id":"a","self":true,"host":"h","rules":"r","degraded":["redis: dial, breaker open","REDIS_TLS: ` +
			`x"]},{"id":"b","host":"h","rules":"r"` + silent +
			`}]}`})
		got := call("", "sidecars", "list", "--server", server)
		for _, want := range append(wants, "Redis cannot be reached, failed several times in a row, REDIS_TLS: x") {
			if !strings.Contains(got.out, want) {
				t.Errorf("%q is missing:\n%s%s", want, got.out, got.errors)
			}
		}
	}
}

// TestBodiesAreRead: an answer of a door is shown with its body, and not in base64.
func TestBodiesAreRead(t *testing.T) {
	server := answering(t,
		map[string]string{"/v1/explain": `{"domain":"d","known":true,"verdict":{"outcome":"refused",` +
			`"status":429},"answers":{"rls":{"rawBody":"eyJ0eXBlIjoidSJ9"},"ext_authz":{"deniedResponse":{"body":"wait"}}}}`})
	got := call("", "explain", "/", "--server", server)
	for _, want := range []string{`{"body":{"type":"u"}}`, `{"deniedResponse":{"body":"wait"}}`} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is missing: %+v", want, got)
		}
	}
}

// TestARefusalIsInWordsOfTheCommand: no words of HTTP lead, and a token that is missing names its flag.
func TestARefusalIsInWordsOfTheCommand(t *testing.T) {
	var status int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"detail":"domain is missing: name one of api, edge"}`)
	}))
	defer server.Close()
	token := write(t, "token", "0123456789abcdef\n")
	for _, c := range []struct {
		status int
		args   string
		want   string
	}{
		{http.StatusUnprocessableEntity, "", "spillway: domain is missing: name one of api, edge\n"},
		{http.StatusUnauthorized, "", "wants a token: --token-file names the file that holds it"},
		{http.StatusUnauthorized, "--token-file " + token, "does not know the token"},
	} {
		status = c.status
		got := call("", append(strings.Fields("top --server "+server.URL), strings.Fields(c.args)...)...)
		if got.code != exitServer || !strings.HasPrefix(got.errors, "spillway: ") || !strings.Contains(got.errors,
			c.want) ||
			strings.Contains(got.errors, "4") && strings.Contains(got.errors, http.StatusText(c.status)) {
			t.Errorf("%d %s: %+v, want %q", c.status, c.args, got, c.want)
		}
	}
}

// TestAnOutageIsInWords: a table has no word of the metrics, and an unknown text stays.
func TestAnOutageIsInWords(t *testing.T) {
	for reason, want := range map[string]string{
		"dial": "Redis cannot be reached", "timeout, breaker half-open": "Redis does not answer in time, is tried " +
			"again",
		"127.0.0.1:1 dial, 127.0.0.1:2 loading": "Redis cannot be reached (127.0.0.1:1), reads its data (127.0.0.1:2)",
		"something new":                         "something new", "redis is version 6.2, and must be 7": "redis is " +
			"version 6.2, and must be 7",
	} {
		if got := outage(reason); got != want {
			t.Errorf("%q is %q, want %q", reason, got, want)
		}
	}
	const counter = `{"name":"per-user","rule":"user","limit":{},"left":0,"unknown":"dial","who":[]}`
	server := answering(t, map[string]string{
		"/v1/usage": `{"identity":{"user":"a","domain":"d"},"counters":[` + counter + `]}`,
		"/v1/explain": `{"client":{"user":"a","evidence":"api_key","fault":"the API key in x is not known"},` +
			`"verdict":{"outcome":"blocked","rule":"~profile","status":403,"degraded":"dial"},` +
			`"charges":[{"left":-1,"degraded":"breaker"}]}`,
		"/v1/decision": `{"outcome":"refused","status":429,"rule":"~penalty","name":"penalty","degraded":"timeout"}`,
		"/v1/top":      `{"sidecars":1,"refused":[{"rule":"~profile","name":"~profile","count":5,"who":[]}]}`,
	})
	for line, wants := range map[string][]string{
		"counters list a": {"not known: Redis cannot be reached"},
		"explain /": {"by block by an operator", "degraded: Redis cannot be reached", "not counted (Redis failed a " +
			"moment ago)",
			"\nthe API key in x is not known\n"},
		"explain --id 1": {"degraded     Redis does not answer in time", "rule         penalty of the domain"},
		"top":            {"block by an operator"},
	} {
		got := call("", append(strings.Fields(line), "--server", server)...)
		for _, want := range wants {
			if !strings.Contains(got.out, want) {
				t.Errorf("spillway %s: %q is missing:\n%s%s", line, want, got.out, got.errors)
			}
		}
	}
}

// TestAQuantileNeedsEvents: of one event none is shown, and of a few not the highest.
func TestAQuantileNeedsEvents(t *testing.T) {
	for samples, want := range map[string]string{
		"1": "took p50 –, p95 –, p99 –, by 1 event\n", "20": "took p50 1 ms, p95 2 ms, p99 –, by 20 events\n",
		"100": "took p50 1 ms, p95 2 ms, p99 3 ms, by 100 events\n",
	} {
		server := answering(t,
			map[string]string{"/v1/domains/d/usage": `{"latency":{"p50":1,"p95":2,"p99":3,"samples":` +
				samples + `}}`})
		got := call("", "usage", "list", "--domain", "d", "--control", server)
		if !strings.Contains(got.out, want) {
			t.Errorf("%s samples: %q is missing:\n%s%s", samples, want, got.out, got.errors)
		}
	}
}
