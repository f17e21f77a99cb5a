package simulation

import (
	"regexp"
	"strconv"
	"sync"
)

// ledger is what Redis charged each address: each is that of one call.
type ledger struct {
	world *world

	mu   sync.Mutex     // guards all below
	runs map[string]int // what was charged and not given back
	most map[string]int // the most of that at any time
}

var address = regexp.MustCompile(`10\.\d+\.\d+\.\d+`)

// wrote sees every change of a text in Redis. A count that grows was charged, one that falls was given back.
func (l *ledger) wrote(key, before, after string) {
	was, is := charged(before), charged(after)
	if was == is {
		return
	}
	id := address.FindString(key)
	if id == "" {
		return
	}
	l.mu.Lock()
	l.runs[id] += is - was
	l.most[id] = max(l.most[id], l.runs[id])
	l.mu.Unlock()
	l.world.trace.add("redis charges %s: %d before, %d now", id, was, is)
}

// charged is what a fixed window counts.
func charged(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// judge: no call was charged twice, one that Redis admitted once, and one that Redis refused not at all.
func (l *ledger) judge(calls []*call) {
	for _, c := range calls {
		if c.id == "" || c.cost <= 0 {
			continue
		}
		switch is, most := l.runs[c.id], l.most[c.id]; {
		case most > int(c.cost):
			l.world.violation(c, "charged %d", most)
		case c.degraded != "" || c.killed:
		case is != int(c.cost) && !c.over:
			l.world.violation(c, "admitted by redis and charged %d", is)
		case is != 0 && c.over && !l.world.elsewhere(c):
			l.world.violation(c, "refused by redis and charged %d", is)
		}
	}
}

// elsewhere reports whether another server may still hold what a refused call took there: a fault may keep it from
// being given back.
func (w *world) elsewhere(c *call) bool {
	return w.s.kind == cluster && w.faultsWithin(c.began-promised.repaired, c.ended+promised.givenBack)
}
