package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// paidRules are paid after the response, over a month, so that time gives nothing back meanwhile.
const paidRules = `
domain: llm
rules:
  - { name: paid, scope: tenant, limit: 1000/30d, post_paid: true, match: { entries: { model: small } } }
  - { name: reserved, scope: tenant, limit: 1000/30d, post_paid: true, reserve: 100,
      match: { entries: { model: large } } }
`

// TestPostPaidConcurrency measures at a real Redis what requests overspend that are under way at the same time, and
// that a reservation of their cost bounds it.
func TestPostPaidConcurrency(t *testing.T) {
	w := &world{redis: servers.StartRedis(t), rules: t.TempDir()}
	w.writeRules(t, map[string]string{"llm.yaml": paidRules})
	w.sidecar = servers.StartSidecar(t, "RULES="+w.rules, storeSilence, storePatience, "REDIS_URL="+w.redis.Addr)
	const atOnce, cost = 50, 100
	for _, c := range []struct {
		model  string
		passed int64
	}{{"small", atOnce}, {"large", 10}} {
		passed := w.atOnce(t, c.model, atOnce, 0)
		if passed != c.passed {
			t.Errorf("model %s: %d of %d at once pass, want %d", c.model, passed, atOnce, c.passed)
		}
		w.atOnce(t, c.model, int(passed), cost)
		t.Logf("model %s: %d of %d at once pass, so %d tokens of 1000 are spent", c.model, passed, atOnce, passed*cost)
		if w.atOnce(t, c.model, 1, 0) != 0 {
			t.Errorf("model %s: a request passes though everything is spent", c.model)
		}
	}
	// What is less than its reservation is given back.
	for range 3 {
		w.hits(t, "other", "large", 0)
		w.hits(t, "other", "large", 40)
	}
	if got := w.hits(t, "other", "large", 0); got.LimitRemaining != 780 {
		t.Errorf("%d left of 1000 after three times 40 and a reservation of 100, want 780", got.LimitRemaining)
	}
}

// atOnce sends requests of one tenant at the same time, and returns how many pass.
func (w *world) atOnce(t *testing.T, model string, n int, hits int) int64 {
	t.Helper()
	var passed atomic.Int64
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			if w.hits(t, "acme", model, hits).Code == "OK" {
				passed.Add(1)
			}
		})
	}
	wait.Wait()
	return passed.Load()
}

// hits asks the sidecar over /json.
func (w *world) hits(t *testing.T, tenant, model string, n int) (s status) {
	t.Helper()
	body := fmt.Sprintf(`{"domain":"llm","descriptors":[{"entries":[{"key":"tenant","value":%q},{"key":"model",`+
		`"value":%q}],"hitsAddend":%d}]}`, tenant, model, n)
	r, err := http.NewRequest(http.MethodPost, "http://"+w.sidecar.HTTP+"/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return s
	}
	got, err := do(http.DefaultClient, r)
	if err != nil {
		t.Error(err)
		return s
	}
	var reply struct {
		Statuses []status `json:"statuses"`
	}
	err = json.Unmarshal([]byte(got.body), &reply)
	if err != nil || len(reply.Statuses) != 1 {
		t.Errorf("answered %q: %v", got.body, err)
		return s
	}
	return reply.Statuses[0]
}

// reservedEdge is in place of the example's domain edge: its /llm, with a reservation.
const reservedEdge = `
domain: edge
descriptors:
  - key: llm_tokens
    value: account
    descriptors:
      - key: user
        post_paid: true
        reserve: 400
        rate_limit: {name: llm-tokens, per: 30d, requests_per_unit: 1000, algorithm: token_bucket}
`

// TestReservationsThroughEnvoy has Envoy ask when a request comes, and charge when its stream is done.
func TestReservationsThroughEnvoy(t *testing.T) {
	w := start(t, setup{rules: map[string]string{"reference.yaml": reservedEdge}})
	const paid = "x-echo-x-tokens-used" // the application answers with x-tokens-used
	decided := int64(0)
	llm := func(status int, remaining, cost string) {
		t.Helper()
		headers := []string{"x-user", "model"}
		decided++
		if status == http.StatusOK && cost != "" {
			headers = append(headers, paid, cost)
			decided++
		}
		w.wants(t, 1, status, "/llm", headers...).remaining(t, remaining)
		// The cost comes some time after the response.
		w.awaitMetric(t, decided, "spillway_decisions_total", `domain="edge"`)
	}
	w.noErrors(t, "reservations", func(t *testing.T) {
		llm(http.StatusOK, "600", "100")             // 400 reserved, then 300 of it given back: 900
		llm(http.StatusOK, "500", "450")             // 450
		llm(http.StatusOK, "50", "")                 // no cost comes, and its 400 stay charged
		llm(http.StatusTooManyRequests, "50", "")    // nothing is taken
		llm(http.StatusTooManyRequests, "50", "100") // nor given back
	})
}
