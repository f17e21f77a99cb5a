package simulation

import (
	"regexp"
	"sync"
)

// ledger counts how often Redis charged each address: each is that of one call.
type ledger struct {
	world *world

	mu   sync.Mutex // guards runs
	runs map[string]int
}

var address = regexp.MustCompile(`10\.\d+\.\d+\.\d+`)

// wrote sees every change of a text in Redis. A count that grows was charged.
func (l *ledger) wrote(key, before, after string) {
	if charged(after) <= charged(before) {
		return
	}
	id := address.FindString(key)
	if id == "" {
		return
	}
	l.mu.Lock()
	l.runs[id]++
	l.mu.Unlock()
	l.world.trace.add("redis charges %s", id)
}

// charged is what a fixed window holds.
func charged(text string) uint64 {
	if len(text) < 12 {
		return 0
	}
	return bits(text[8:12])
}

// judge: no call was charged twice, one that Redis admitted once, and one that Redis refused not at all.
func (l *ledger) judge(calls []*call) {
	for _, c := range calls {
		if c.id == "" || c.cost <= 0 {
			continue
		}
		switch runs := l.runs[c.id]; {
		case runs > 1 && c.domain.policy != "local": // what is admitted locally is charged afterwards
			l.world.violation(c, "charged %d times", runs)
		case c.degraded != "":
		case runs != 1 && !c.over:
			l.world.violation(c, "admitted by redis and charged %d times", runs)
		case runs != 0 && c.over:
			l.world.violation(c, "refused by redis and charged %d times", runs)
		}
	}
}

// isCalm: when all is calm each sidecar has as many connections as before the first fault.
func (w *world) isCalm() {
	w.mu.Lock()
	conns := w.conns
	w.mu.Unlock()
	for i, before := range conns {
		if now := w.network.count(place(i), redisAddress); now != before {
			w.violation(nil, "sidecar %d has %d connections when all is calm, and had %d", i, now, before)
		}
	}
}
