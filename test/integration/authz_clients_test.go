package integration

import (
	"net/http"
	"testing"
	"time"
)

// clientRules are behind the example's /partners. Clients come behind one more proxy, so that each case has addresses
// of its own.
const clientRules = `
domain: partners
on_failure: closed
timezone: Asia/Kathmandu
identity:
  order: [jwt, api_key, ip]
  jwt:
    - issuer: https://issuer.example
      jwks: file:keys.json
      audiences: [shop]
      claims: { user: sub, tenant: org_id, tier: plan }
  api_keys:
    header: x-api-key
    keys:
      - { id: demo, sha256: "4c632e7135929907209e422fd8a878aca2a19f7a3ed1089e7c3e1c53c44bfa69", user: alice }
      - { id: ci, sha256: "d889bc32fcb5d1fc36f7ee50379539de7a9b3a7ad49d04898323d4c32152fba2", user: alice }
  client_ip: { trusted_hops: 2 }
rules:
  - { name: guests, scope: ip, match: { authenticated: false }, limit: 3/1h }
  - { name: users, scope: user, limit: 1000/1h }
  - { name: clients, scope: [client, endpoint], match: { endpoints: ["/partners/client"] }, limit: 2/1h }
  - { name: per-key, scope: [api_key, endpoint], match: { endpoints: ["/partners/key"] }, limit: 2/1h }
  - { name: pro-all, scope: [tier, endpoint], match: { tiers: [pro], endpoints: ["/partners/tier"] }, limit: 2/1h }
  - { name: daily, scope: [user, endpoint], match: { endpoints: ["/partners/daily"] }, limit: { count: 2,
      per: calendar_day } }
  - { name: monthly, scope: [user, endpoint], match: { endpoints: ["/partners/monthly"] }, limit: { count: 2,
      per: calendar_month } }
  - { name: bursty, scope: endpoint, match: { endpoints: ["/partners/bursty"] }, limit: { count: 5, per: 1h,
      burst: 9 }, cost: 2 }
`

func TestAuthzClients(t *testing.T) {
	onEachStore(t, authzSetup{rules: map[string]string{"partners.yaml": clientRules, "keys.json": keySet()}},
		func(t *testing.T, w *world) {
			w.clean(t, "users behind one address are not held to its limit", w.nat)
			w.clean(t, "a client is its user, else its address", w.clients)
			w.clean(t, "a limit per API key", w.perKey)
			w.clean(t, "one counter for a tier", w.perTier)
			w.clean(t, "the limit shown is never below what is left", w.bursty)
			w.clean(t, "quotas end with the day and the month of the domain's time zone", w.calendars)
			if w.redis != nil {
				w.clean(t, "rules inherit the domain's failure policy", w.inherited)
			}
		})
}

func (w *world) nat(t *testing.T) {
	const office = "198.51.100.1"
	w.wants(t, 3, http.StatusOK, "/partners/a", "x-forwarded-for", office).has(t, "x-ratelimit-limit", "3")
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/a", "x-forwarded-for", office)
	w.wants(t, 5, http.StatusOK, "/partners/a", "x-forwarded-for", office, "authorization",
		"Bearer "+tokenOf("bob")).has(t, "x-ratelimit-limit", "1000")
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/a", "x-forwarded-for", office)
}

func (w *world) clients(t *testing.T) {
	bob := []string{"x-forwarded-for", "198.51.100.2", "authorization", "Bearer " + tokenOf("bob")}
	w.wants(t, 2, http.StatusOK, "/partners/client", bob...)
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/client", bob...)
	w.wants(t, 2, http.StatusOK, "/partners/client", "x-forwarded-for", "198.51.100.2")
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/client", "x-forwarded-for", "198.51.100.2")
	// A user whose name is an address is not that address.
	w.wants(t, 1, http.StatusOK, "/partners/client", "authorization", "Bearer "+tokenOf("198.51.100.2")).has(t,
		"x-ratelimit-remaining", "1")
}

func (w *world) perKey(t *testing.T) {
	w.wants(t, 2, http.StatusOK, "/partners/key", "x-api-key", demoKey)
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/key", "x-api-key", demoKey)
	w.wants(t, 1, http.StatusOK, "/partners/key", "x-api-key", ciKey).has(t, "x-ratelimit-remaining", "1")
}

func (w *world) perTier(t *testing.T) {
	for _, user := range []string{"carol", "dave"} {
		w.wants(t, 1, http.StatusOK, "/partners/tier", "authorization", "Bearer "+tokenOf(user))
	}
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/tier", "authorization", "Bearer "+tokenOf("erin"))
}

func (w *world) bursty(t *testing.T) {
	got := w.wants(t, 1, http.StatusOK, "/partners/bursty", "authorization", "Bearer "+tokenOf("frank"))
	got.has(t, "x-ratelimit-limit", "9")
	got.has(t, "x-ratelimit-remaining", "7")
	got.has(t, "x-ratelimit-cost", "2")
}

// Days in Kathmandu begin at 18:15 UTC, all year.
func (w *world) calendars(t *testing.T) {
	grace := []string{"authorization", "Bearer " + tokenOf("grace")}
	const ahead = 5*time.Hour + 45*time.Minute
	ends := map[string]func(day time.Time) time.Time{
		"/partners/daily":   func(day time.Time) time.Time { return day.AddDate(0, 0, 1) },
		"/partners/monthly": func(day time.Time) time.Time { return day.AddDate(0, 1, 1-day.Day()) },
	}
	for path, end := range ends {
		inside(t, 15*time.Minute) // of which each midnight there is a border
		local := time.Now().UTC().Add(ahead)
		rest := int(end(local.Truncate(24 * time.Hour)).Sub(local).Seconds())
		got := w.wants(t, 2, http.StatusOK, path, grace...)
		got.has(t, "x-ratelimit-remaining", "0")
		between(t, got, "x-ratelimit-reset", rest-60, rest+1)
		between(t, w.wants(t, 1, http.StatusTooManyRequests, path, grace...), "retry-after", rest-60, rest+1)
	}
}

func (w *world) inherited(t *testing.T) {
	frank := []string{"authorization", "Bearer " + tokenOf("frank")}
	w.redis.Kill(t)
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/a", frank...).has(t, "retry-after", "1")
}

// scanRules give each endpoint a limit that is spent at once, so that a scanner can spread its refusals.
const scanRules = `
domain: partners
penalty: { cool_down: 1h }
identity: { client_ip: { trusted_hops: 2 } }
rules:
  - { name: pages, scope: [ip, endpoint], match: { endpoints: ["/partners/*"] }, limit: 1/1m }
  - { name: quiet, scope: ip, match: { endpoints: ["/partners/quiet/*"] }, limit: 1000/1m }
  - { name: one, scope: [ip, endpoint], match: { endpoints: ["/partners/x/1"] }, limit: 1/1m }
  - { name: two, scope: [ip, endpoint], match: { endpoints: ["/partners/x/2"] }, limit: 1/1m }
  - { name: three, scope: [ip, endpoint], match: { endpoints: ["/partners/x/3"] }, limit: 1/1m }
  - { name: health, match: { endpoints: ["/partners/health"] }, action: allow }
`

func TestAuthzOnePenaltyPerClient(t *testing.T) {
	onEachStore(t, authzSetup{rules: map[string]string{"partners.yaml": scanRules}}, func(t *testing.T, w *world) {
		w.clean(t, "refusals spread over rules", w.scanner)
	})
}

func (w *world) scanner(t *testing.T) {
	from := []string{"x-forwarded-for", "203.0.113.5"}
	for _, path := range []string{"/partners/x/1", "/partners/x/2", "/partners/x/3"} {
		w.wants(t, 1, http.StatusOK, path, from...)
	}
	between(t, w.wants(t, 1, http.StatusTooManyRequests, "/partners/x/1", from...), "retry-after", 1, 60)
	between(t, w.wants(t, 1, http.StatusTooManyRequests, "/partners/x/2", from...), "retry-after", 1, 60)
	between(t, w.wants(t, 1, http.StatusTooManyRequests, "/partners/x/3", from...), "retry-after", 3000, 3600)
	got := w.wants(t, 3, http.StatusTooManyRequests, "/partners/quiet/page", from...)
	between(t, got, "retry-after", 3000, 3600)
	got.mentions(t, `"penalty"`)
	w.wants(t, 1, http.StatusOK, "/partners/health", from...)
	w.wants(t, 1, http.StatusOK, "/partners/a/b/c", from...) // no rule is about it
	w.wants(t, 1, http.StatusOK, "/partners/quiet/page", "x-forwarded-for", "203.0.113.6")
}
