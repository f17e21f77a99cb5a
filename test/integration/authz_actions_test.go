package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// actionRules are behind the example's /partners. The due times lie far enough apart for a busy machine.
const actionRules = `
domain: partners
rules:
  - name: held
    scope: endpoint
    match: { endpoints: ["/partners/held", "/partners/many"] }
    limit: { count: 1, per: 1s, burst: 1 }
    action: throttle
    max_delay: 1500ms
  - name: left
    scope: endpoint
    match: { endpoints: ["/partners/left"] }
    limit: { count: 1, per: 3s, burst: 1 }
    action: throttle
    max_delay: 3500ms
  - name: punished
    scope: [ip, endpoint]
    match: { endpoints: ["/partners/punished"] }
    limit: 1/1m
    penalty: { threshold: 2, detection_window: 10m, cool_down: 1h, multipliers: [1, 2] }
  - name: rehearsed
    scope: [ip, endpoint]
    match: { endpoints: ["/partners/rehearsed"] }
    limit: 1/1m
    penalty: { threshold: 2, detection_window: 10m, cool_down: 1h, multipliers: [1, 2], dry_run: true }
`

func TestAuthzActions(t *testing.T) {
	onEachStore(t, authzSetup{rules: map[string]string{"partners.yaml": actionRules}}, func(t *testing.T, w *world) {
		w.clean(t, "throttle holds the answer", w.throttleHolds)
		w.clean(t, "throttle refuses what is due too late", w.throttleRefuses)
		w.clean(t, "a caller that hangs up gives its token back", w.throttleGivesBack)
		w.clean(t, "penalty", w.penalty)
		w.clean(t, "penalty as a dry run", w.rehearsal)
	})
}

func (w *world) throttleHolds(t *testing.T) {
	begun := time.Now()
	w.wants(t, 1, http.StatusOK, "/partners/held")
	w.wants(t, 1, http.StatusOK, "/partners/held")
	// The token of the second is due a second after the first was taken, which was after begun.
	if took := time.Since(begun); took < time.Second {
		t.Errorf("the second of one a second was answered after %v, want a second", took)
	}
}

// Of five at once, one passes, one is held for a second, and the token of the third would be due after two.
func (w *world) throttleRefuses(t *testing.T) {
	var passed, refused atomic.Int64
	var wait sync.WaitGroup
	for range 5 {
		wait.Go(func() {
			got, err := w.try("/partners/many")
			switch {
			case err == nil && got.status == http.StatusOK:
				passed.Add(1)
			case err == nil && got.status == http.StatusTooManyRequests && got.header.Get("retry-after") != "":
				refused.Add(1)
			default:
				t.Errorf("answered with %d, %v", got.status, err)
			}
		})
	}
	wait.Wait()
	if passed.Load() < 2 || refused.Load() < 1 {
		t.Errorf("of five at once %d passed and %d were refused, want two and the others", passed.Load(),
			refused.Load())
	}
}

func (w *world) throttleGivesBack(t *testing.T) {
	w.wants(t, 1, http.StatusOK, "/partners/left")
	ctx, stopWaiting := context.WithCancel(t.Context())
	defer stopWaiting()
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.envoy.Addr+"/partners/left", nil))(t)
	ended := make(chan error, 1)
	go func() {
		_, err := do(w.client, r)
		ended <- err
	}()
	w.awaitMetric(t, 1, "spillway_throttle_waiting")
	stopWaiting()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("the request ended with %v before it was given up", err)
	}
	// A decision is counted when it is over, and then the token is back.
	w.awaitMetric(t, 2, "spillway_decisions_total", `domain="partners"`, `rule="left"`)
	// Its token is due within three seconds, and the one after it, due after six, would be too late.
	w.wants(t, 1, http.StatusOK, "/partners/left")
}

// awaitMetric waits until the sum of a metric of the sidecar has that value.
func (w *world) awaitMetric(t *testing.T, want int64, name string, labels ...string) {
	t.Helper()
	servers.Await(t, fmt.Sprintf("%s%v to be %d", name, labels, want), func() error {
		m, err := servers.Scrape(w.sidecar.Debug)
		if err != nil {
			return err
		}
		if got := m.Sum(name, labels...); got != want {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
}

func (w *world) penalty(t *testing.T) {
	w.wants(t, 1, http.StatusOK, "/partners/punished")
	between(t, w.wants(t, 1, http.StatusTooManyRequests, "/partners/punished"), "retry-after", 1, 60)
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/punished")
	// The second refusal began a cool-down of an hour, longer than the limit itself would last.
	between(t, w.wants(t, 1, http.StatusTooManyRequests, "/partners/punished"), "retry-after", 3000, 3600)
	w.wants(t, 1, http.StatusOK, "/partners/other")
}

func (w *world) rehearsal(t *testing.T) {
	w.wants(t, 1, http.StatusOK, "/partners/rehearsed")
	between(t, w.wants(t, 5, http.StatusTooManyRequests, "/partners/rehearsed"), "retry-after", 1, 60)
}

// Every request is decided by one set of rules or the next, never by none.
func TestAuthzReloadUnderLoad(t *testing.T) {
	w := startAuthz(t, authzSetup{rules: map[string]string{"partners.yaml": loadRules(100), "keys.json": keySet()}})
	w.clean(t, "reload", func(t *testing.T) {
		stop := w.authzLoad(t, 4)
		for n := 101; n <= 115; n++ {
			w.writeRule(t, "partners.yaml", loadRules(n))
			if n%5 == 0 {
				w.sidecar.Send(t, syscall.SIGHUP)
			}
			servers.Await(t, "the rules of this round", func() error {
				return w.shows("/partners/looked", fmt.Sprint(n))
			})
		}
		w.writeRule(t, "partners.yaml", "domain: partners\nrules: [{nam: x}]\n")
		servers.Await(t, "the report of the broken file", func() error {
			if !strings.Contains(w.sidecar.Output(), "partners.yaml:2:") {
				return errors.New("the log does not name partners.yaml:2")
			}
			return nil
		})
		if err := w.shows("/partners/looked", "115"); err != nil {
			t.Errorf("after a broken file the last good rules should stay: %v", err)
		}
		sent, bad := stop()
		if len(bad) > 0 || sent < 100 {
			t.Errorf("%d of %d requests went wrong while rules were reloaded: %.5v", len(bad), sent, bad)
		}
	})
}

// loadRules are rules that change in one number; who is who stays.
func loadRules(n int) string {
	return fmt.Sprintf("domain: partners\nidentity:\n  order: [jwt, ip]\n%srules:\n"+
		"  - { name: per-user, scope: user, limit: 1_000_000/1s }\n"+
		"  - { name: looked, scope: endpoint, match: { endpoints: [\"/partners/looked\"] }, limit: %d/1h }\n",
		tokenIssuer, n)
}

// authzLoad sends requests with tokens until stop is called. Each answer must report its user's limit.
func (w *world) authzLoad(t *testing.T, clients int) (stop func() (int64, []string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var (
		wait sync.WaitGroup
		sent atomic.Int64
		mu   sync.Mutex
		bad  []string
	)
	for client := range clients {
		token := "Bearer " + tokenOf(fmt.Sprintf("load-%d", client))
		wait.Go(func() {
			for ctx.Err() == nil {
				got, err := w.try("/partners/load", "authorization", token)
				sent.Add(1)
				if err != nil || got.status != http.StatusOK || got.header.Get("x-ratelimit-limit") != "1000000" {
					mu.Lock()
					bad = append(bad, fmt.Sprintf("%d %v %v", got.status, err, got.header))
					mu.Unlock()
				}
			}
		})
	}
	return func() (int64, []string) {
		cancel()
		wait.Wait()
		return sent.Load(), bad
	}
}

// An answer that waits when the sidecar gets its signal still comes, if it is due before the end, which is three
// seconds later.
func TestAuthzTermWhileAnswersAreHeld(t *testing.T) {
	rules := strings.Replace(actionRules, "per: 3s", "per: 2s", 1)
	w := startAuthz(t, authzSetup{memory: true, rules: map[string]string{"partners.yaml": rules}})
	w.clean(t, "held", func(t *testing.T) {
		w.wants(t, 1, http.StatusOK, "/partners/left")
		ended := make(chan answer, 1)
		go func() {
			got, err := w.try("/partners/left")
			if err != nil {
				t.Errorf("the held request: %v", err)
			}
			ended <- got
		}()
		w.awaitMetric(t, 1, "spillway_throttle_waiting")
		w.sidecar.Send(t, syscall.SIGTERM)
		if got := <-ended; got.status != http.StatusOK {
			t.Errorf("the held request was answered with %d, want 200 (body %q)", got.status, got.body)
		}
		if code := w.sidecar.Exit(t); code != 0 {
			t.Errorf("the sidecar ended with code %d", code)
		}
	})
}

// A route that names no domain has the sidecar's default.
func TestAuthzDefaultDomain(t *testing.T) {
	w := startAuthz(t, authzSetup{
		memory: true, env: []string{"DEFAULT_DOMAIN=api"},
		swaps: [][2]string{{"{context_extensions: {domain: api}}", "{context_extensions: {note: none}}"}},
	})
	w.clean(t, "default", func(t *testing.T) {
		w.wants(t, 1, http.StatusOK, "/", "x-api-key", demoKey).has(t, "x-ratelimit-limit", "20")
		w.wants(t, 1, http.StatusForbidden, "/v0/items")
	})
}
