package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// rules are those of all domains, after so many changes.
func (s *scenario) rules(changes int) map[string]string {
	files := map[string]string{}
	for _, d := range s.domains {
		count, burst := d.count, d.burst
		if n := min(changes, len(d.changes)); n > 0 {
			count, burst = d.changes[n-1], d.changes[n-1]
		}
		fill := ""
		if d.algorithm == "token_bucket" {
			fill = fmt.Sprintf(", burst: %d", burst)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "domain: %s\non_failure: %s\n", d.name, d.policy)
		scope := "user"
		if d.check {
			scope = "ip"
			b.WriteString("identity: {order: [ip]}\n")
		}
		b.WriteString("rules:\n")
		fmt.Fprintf(&b, "  - {name: main, scope: %s, lease: %t, cost: 1, ", scope, d.lease)
		fmt.Fprintf(&b, "limit: {count: %d, per: %ds, algorithm: %s%s}%s}\n",
			count, d.window/time.Second, d.algorithm, fill, d.extra())
		if !d.check {
			b.WriteString("  - {name: once, scope: ip, lease: false, cost: 1, ")
			b.WriteString("limit: {count: 1000000, per: 1h, algorithm: fixed_window}}\n")
		}
		files[d.name+".yaml"] = b.String()
	}
	return files
}

// newSpecial makes a domain whose rule does more than to admit and refuse. Seeds take turns with the kinds.
func newSpecial(r *rand.Rand, seed uint64) *domain {
	d := newDomain(r, 5, pick(r, "local", "open", "closed"))
	d.special = []string{"paid", "throttled", "punished"}[seed%3]
	d.algorithm, d.lease, d.changes, d.window = "token_bucket", false, nil, time.Second
	d.count = pick[int64](r, 5, 10, 20)
	d.burst = d.count
	switch d.special {
	case "paid":
		d.count, d.users = pick[int64](r, 20, 50, 100), 2
		d.burst, d.reserve = d.count, pick[int64](r, 0, 5)
	case "throttled":
		d.users, d.delay = 1, pick(r, 100*time.Millisecond, 300*time.Millisecond, time.Second)
		d.burst = pick(r, 1, d.count)
	case "punished":
		d.users, d.threshold, d.detection = 2, 2+r.IntN(3), time.Duration(2+r.IntN(4))*time.Second
		d.count = pick[int64](r, 2, 4)
		d.burst, d.coolDown = d.count, time.Duration(2+r.IntN(3))*time.Second
	}
	return d
}

// extra is what the rule has beside its limit.
func (d *domain) extra() string {
	switch {
	case d.special == "paid" && d.reserve > 0:
		return fmt.Sprintf(", post_paid: true, reserve: %d", d.reserve)
	case d.special == "paid":
		return ", post_paid: true"
	case d.special == "throttled":
		return fmt.Sprintf(", action: throttle, max_delay: %v", d.delay)
	case d.special == "punished":
		return fmt.Sprintf(", penalty: {threshold: %d, detection_window: %v, cool_down: %v}",
			d.threshold, d.detection, d.coolDown)
	}
	return ""
}
