package leases

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// BenchmarkSpend is a leased decision.
func BenchmarkSpend(b *testing.B) {
	d, c := newDesk(nil), charge("rl1:{shop|10.0.0.1}:ip:per-ip:1:tb", perSecond, 1)
	d.grant = func(*limit.Request) limit.Decision {
		return limit.Decision{Outcome: limit.Allowed, Charged: 1 << 50, Wait: time.Second}
	}
	d.warm(c)
	d.ask(c)
	r := request(c)
	for b.Loop() {
		d.Spend(r, d.now)
	}
}
