package main

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

func TestOnlyThePartBehindEnvoyNeedsEnvoy(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "envoy")
	for part, want := range map[string]string{"closed": "", "envoy": missing} {
		set := must.Get(readSettings(environment(map[string]string{"BENCH_PARTS": part, "ENVOY_BIN": missing})))(t)
		if set.Envoy != want {
			t.Errorf("the part %s needs the Envoy %q, want %q", part, set.Envoy, want)
		}
	}
	err := (&settings{Envoy: missing}).find()
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "make demo-tools") {
		t.Errorf("a missing Envoy gives the error %v, want one that names make demo-tools", err)
	}
}

func TestBootstrapHasTheAddressesOfTheRun(t *testing.T) {
	text := string(must.Get(os.ReadFile(filepath.Join("..", example)))(t))
	got := must.Get(bootstrap(text, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4"))(t)
	for _, port := range []string{"1", "2", "3", "4"} {
		if n := strings.Count(got, "address: 127.0.0.1, port_value: "+port+"}"); n != 1 {
			t.Errorf("port %s of the run is there %d times, want once", port, n)
		}
	}
	if n := strings.Count(got, "port_value: "); n != 4 {
		t.Errorf("there are %d addresses, want the 4 of the run", n)
	}
	_, err := bootstrap(strings.ReplaceAll(text, "port_value: 8081", "port_value: 8082"), "a:1", "a:2", "a:3", "a:4")
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:8081") {
		t.Errorf("an example without the sidecar's address gives the error %v", err)
	}
}

// TestRequestsBehindEnvoyAreJudged has a server that answers as Envoy does: with the header where the sidecar decided.
func TestRequestsBehindEnvoyAreJudged(t *testing.T) {
	for name, one := range map[string]struct {
		status           int
		decided, limited bool
		good, failed     int
	}{
		"admitted":                {http.StatusOK, true, true, 20, 0},
		"not asked about":         {http.StatusOK, false, false, 20, 0},
		"refused":                 {http.StatusTooManyRequests, true, true, 0, 20},
		"let through":             {http.StatusOK, false, true, 0, 20},
		"asked about for nothing": {http.StatusOK, true, false, 0, 20},
		"lost":                    {http.StatusServiceUnavailable, true, true, 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if user := r.Header.Get("x-user"); (user == "v000007") != one.limited {
					t.Errorf("the user is %q", user)
				}
				if one.decided {
					w.Header().Set("x-ratelimit-limit", "5")
				}
				w.WriteHeader(one.status)
			}))
			defer server.Close()
			c := &client{url: server.URL, limited: one.limited}
			got := c.flow(t.Context(), 1000, 20*time.Millisecond, func() int { return 7 })
			if len(got.latencies) != one.good || got.errors != one.failed {
				t.Errorf("there are %d answers and %d failures (%s), want %d and %d", len(got.latencies), got.errors,
					got.first, one.good, one.failed)
			}
		})
	}
}

func TestGoalsOfRequestsAreMetOrMissed(t *testing.T) {
	s := envoySample()
	row := strings.Join(envoyTable(s).rows[1], " ")
	if !strings.Contains(row, "5.00 ≤ 5, met 10.2 ≤ 10, missed") {
		t.Errorf("a P95 of 5 ms and a P99 of 10.2 ms give the row %q", row)
	}
	s.Rounds[unlimited][0].Errors = 1
	row = strings.Join(envoyTable(s).rows[1], " ")
	if strings.Contains(row, "met") || strings.Count(row, "no result") != 2 {
		t.Errorf("a request that failed gives the row %q", row)
	}
}

func TestOutcomeHasPercentiles(t *testing.T) {
	var seen tally
	for i := range int64(100) {
		seen.latencies = append(seen.latencies, 100-i)
	}
	if got := seen.outcome(1, 2); got.P50 != 50 || got.P95 != 95 || got.P99 != 99 || got.Decisions != 100 {
		t.Errorf("latencies from 1 to 100 give %+v", got)
	}
}
