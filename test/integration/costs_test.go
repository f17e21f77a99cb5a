package integration

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// partners refuses without charging: all or nothing, also in the tree.
const partners = `
domain: partners
charge_denied: false
descriptors:
  - key: partners
    value: all
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: partners
    value: one
    descriptors:
      - key: user
        rate_limit: {unit: day, requests_per_unit: 1}
`

// counted are scoped rules behind the example's /shop.
const counted = `
domain: shop
rules:
  - {name: per-user, scope: user, limit: 3/1h}
  - {name: search, scope: endpoint, match: {endpoints: ["/shop/search"]}, limit: 1000/1h}
  - {name: dear, scope: endpoint, match: {endpoints: ["/shop/dear"]}, limit: 8/1h, cost: 7}
  - {name: health, match: {endpoints: ["/shop/health"]}, action: allow}
  - {name: gone, match: {users: [mallory]}, action: block, reason: "Contact support."}
`

func TestCostsThroughEnvoy(t *testing.T) {
	w := start(t, setup{rules: map[string]string{"partners.yaml": partners, "shop.yaml": counted}})
	w.noErrors(t, "several descriptors, each charged", w.eachCharged)
	w.noErrors(t, "several descriptors, all or nothing", w.allOrNothing)
	w.noErrors(t, "cost through hits_addend", w.costs)
	w.noErrors(t, "peek", w.peeks)
	w.noErrors(t, "refund", w.refunds)
	w.noErrors(t, "override", w.overrides)
	w.noErrors(t, "charged when the stream is done", w.streamDone)
	w.noErrors(t, "scoped rules", w.scoped)
}

func (w *world) eachCharged(t *testing.T) {
	inside(t, time.Hour)
	w.wants(t, 5, http.StatusOK, "/login", "x-user", "guesser").remaining(t, "0")
	w.wants(t, 2, http.StatusTooManyRequests, "/login", "x-user", "guesser")
	if got := w.peek(t, "edge", "login", "client", "remote_address", "127.0.0.1"); got.LimitRemaining != 13 {
		t.Errorf("the client's address has %d of 20 left after 7 tries, want 13: refused tries count in a tree",
			got.LimitRemaining)
	}
	// Another account from the same address: the address runs out first.
	w.wants(t, 5, http.StatusOK, "/login", "x-user", "second")
	w.wants(t, 5, http.StatusOK, "/login", "x-user", "third")
	w.wants(t, 3, http.StatusOK, "/login", "x-user", "fourth")
	w.wants(t, 1, http.StatusTooManyRequests, "/login", "x-user", "fifth")
}

func (w *world) allOrNothing(t *testing.T) {
	inside(t, 24*time.Hour)
	w.wants(t, 1, http.StatusOK, "/partners", "x-user", "first")
	w.wants(t, 3, http.StatusTooManyRequests, "/partners", "x-user", "first")
	if got := w.peek(t, "partners", "partners", "all"); got.LimitRemaining != 9 {
		t.Errorf("all partners together have %d of 10 left after one admitted request, want 9: refused ones charge "+
			"nothing", got.LimitRemaining)
	}
}

func (w *world) costs(t *testing.T) {
	inside(t, time.Hour)
	w.wants(t, 1, http.StatusOK, "/batch", "x-user", "plain")
	if got := w.peek(t, "edge", "batch", "cost", "user", "plain"); got.LimitRemaining != 99 {
		t.Errorf("%d of 100 left after a request without a cost, want 99", got.LimitRemaining)
	}
	w.wants(t, 2, http.StatusOK, "/batch/import", "x-user", "heavy").remaining(t, "10")
	w.wants(t, 1, http.StatusTooManyRequests, "/batch/import", "x-user", "heavy")
	// In a tree a cost above what is left takes what is left, as in the reference server.
	w.wants(t, 1, http.StatusTooManyRequests, "/batch", "x-user", "heavy")
	if got := w.peek(t, "edge", "batch", "calls", "user", "heavy"); got.LimitRemaining != 46 {
		t.Errorf("%d of 50 calls left after 4, want 46: calls count whatever the cost header says", got.LimitRemaining)
	}
	w.clientsNameNoPrice(t)
}

// clientsNameNoPrice sends the example's cost header, which counts for nothing.
func (w *world) clientsNameNoPrice(t *testing.T) {
	for i, price := range []string{"0", "none", "60", "-1", ""} {
		liar := fmt.Sprint("liar-", i)
		w.wants(t, 1, http.StatusOK, "/batch/import", "x-user", liar, "x-request-cost", price)
		w.wants(t, 1, http.StatusOK, "/batch", "x-user", liar, "x-request-cost", price)
		if got := w.peek(t, "edge", "batch", "cost", "user", liar); got.LimitRemaining != 54 {
			t.Errorf("%d of 100 left after requests with x-request-cost %q, want 54: 45 and 1 are the mesh's",
				got.LimitRemaining, price)
		}
	}
}

func (w *world) peeks(t *testing.T) {
	inside(t, time.Minute)
	w.wants(t, 3, http.StatusOK, "/quota", "x-user", "peeker").remaining(t, "10")
	w.wants(t, 4, http.StatusOK, "/", "x-user", "peeker").remaining(t, "6")
	w.wants(t, 3, http.StatusOK, "/quota", "x-user", "peeker").remaining(t, "6")
	w.wants(t, 6, http.StatusOK, "/", "x-user", "peeker").remaining(t, "0")
	w.wants(t, 1, http.StatusTooManyRequests, "/quota", "x-user", "peeker")
}

func (w *world) refunds(t *testing.T) {
	inside(t, 24*time.Hour)
	w.wants(t, 2, http.StatusOK, "/bookings", "x-user", "traveller").remaining(t, "0")
	w.wants(t, 1, http.StatusTooManyRequests, "/bookings", "x-user", "traveller")
	w.wants(t, 1, http.StatusOK, "/bookings/cancel", "x-user", "traveller").remaining(t, "1")
	w.wants(t, 1, http.StatusOK, "/bookings", "x-user", "traveller").remaining(t, "0")
	// Given back too often, it is full and no more.
	w.wants(t, 5, http.StatusOK, "/bookings/cancel", "x-user", "traveller").remaining(t, "2")
	w.wants(t, 2, http.StatusOK, "/bookings", "x-user", "traveller")
	w.wants(t, 1, http.StatusTooManyRequests, "/bookings", "x-user", "traveller")
}

func (w *world) overrides(t *testing.T) {
	inside(t, time.Hour) // and so in a day
	w.wants(t, 3, http.StatusOK, "/trial", "x-user", "trier").remaining(t, "0")
	w.wants(t, 1, http.StatusTooManyRequests, "/trial", "x-user", "trier")
	// The same window with another number continues counting: three of five are spent.
	w.wants(t, 1, http.StatusOK, "/trial/extended", "x-user", "trier").remaining(t, "1")
	w.wants(t, 1, http.StatusOK, "/trial/extended", "x-user", "trier").remaining(t, "0")
	w.wants(t, 1, http.StatusTooManyRequests, "/trial/extended", "x-user", "trier")
	// And the one from dynamic metadata.
	got := w.wants(t, 3, http.StatusOK, "/plan", "x-user", "trier")
	if limit := got.header.Get("x-ratelimit-limit"); limit != "3, 3;w=3600" {
		t.Errorf("x-ratelimit-limit is %q, want the 3 an hour of the metadata", limit)
	}
	w.wants(t, 1, http.StatusTooManyRequests, "/plan", "x-user", "trier")
}

func (w *world) streamDone(t *testing.T) {
	const paid = "x-echo-x-tokens-used" // the application answers with x-tokens-used
	w.wants(t, 1, http.StatusOK, "/llm", "x-user", "model", paid, "400")
	w.awaitTokens(t, "model", 600)
	// More than what is left is taken all the same: the answer has been given.
	w.wants(t, 1, http.StatusOK, "/llm", "x-user", "model", paid, "1100")
	w.awaitTokens(t, "model", 0)
	got := w.wants(t, 1, http.StatusTooManyRequests, "/llm", "x-user", "model")
	// 500 below zero at 1000 an hour: 501 tokens are 1803.6 s away.
	between(t, got, "retry-after", 1795, 1804)
	// An answer without a cost charges nothing.
	w.wants(t, 3, http.StatusOK, "/llm", "x-user", "free")
	w.awaitTokens(t, "free", 1000)
}

// awaitTokens waits for a charge that Envoy sends after the response.
func (w *world) awaitTokens(t *testing.T, user string, want int64) {
	t.Helper()
	servers.Await(t, "the charge after the response", func() error {
		got := w.peek(t, "edge", "llm_tokens", "account", "user", user)
		// A token or so comes back while the test looks.
		if got.LimitRemaining < want || got.LimitRemaining > want+5 {
			return fmt.Errorf("%s has %d tokens left, want %d", user, got.LimitRemaining, want)
		}
		return nil
	})
}

func (w *world) scoped(t *testing.T) {
	w.wants(t, 2, http.StatusOK, "/shop/search?q=boots", "x-user", "shopper")
	got := w.wants(t, 1, http.StatusOK, "/shop//search/../search?q=hats", "x-user", "shopper")
	got.remaining(t, "0")
	got.has(t, "x-ratelimit-cost", "1")
	w.wants(t, 1, http.StatusOK, "/shop/dear", "x-user", "spender").has(t, "x-ratelimit-cost", "7")
	between(t, w.wants(t, 1, http.StatusTooManyRequests, "/shop/cart", "x-user", "shopper"), "retry-after", 1, 1200)
	w.wants(t, 1, http.StatusOK, "/shop/health", "x-user", "shopper").unlimited(t)
	blocked := w.wants(t, 1, http.StatusTooManyRequests, "/shop/cart", "x-user", "mallory")
	if want := strconv.Quote("Contact support."); !strings.Contains(blocked.body, want) {
		t.Errorf("the body of a block is %q, want its reason %s", blocked.body, want)
	}
	// Without a user there is nothing to count by user, and the path still counts.
	w.wants(t, 5, http.StatusOK, "/shop/search")
	if got := w.peek(t, "shop", "path", "/shop/search"); got.LimitRemaining != 992 {
		t.Errorf("the endpoint has %d of 1000 left after 8 requests, want 992", got.LimitRemaining)
	}
}
