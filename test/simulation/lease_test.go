package simulation

import (
	"strings"
	"sync"
	"time"
)

// leases is a ledger of what each sidecar spends without asking: a lease comes with a command, and ends a while later.
type leases struct {
	world *world

	mu       sync.Mutex        // guards all below
	of       map[string]*lease // by sidecar and counter
	commands int               // that Redis ran for counters
}

// lease is what a sidecar may hold of a counter.
type lease struct {
	asked         time.Duration // when Redis last ran a command for it
	spent, former int64         // since then, and between that and the time before
}

// asked notes that Redis runs a script with keys.
func (l *leases) asked(c *conn, keys [][]byte) {
	from, _, _ := strings.Cut(string(c.peer.name), ":")
	now := l.world.since()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		counter := counterOf(string(key))
		if counter == "" {
			continue
		}
		l.commands++
		at := from + counter
		if l.of[at] == nil {
			l.of[at] = &lease{}
		}
		e := l.of[at]
		e.asked, e.spent, e.former = now, 0, e.spent
	}
}

// counterOf is the part of a key in braces, which names the domain and the user.
func counterOf(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	name, rest, _ := strings.Cut(rest, "}")
	if !strings.Contains(rest, ":main:") {
		return ""
	}
	return name
}

// judge: what is admitted without asking is within a lease, and no more than a lease can hold. It is called when a call
// has ended.
func (l *leases) judge(c *call) {
	if c.ended != c.began || c.degraded != "" || c.over || c.cost <= 0 || c.killed || c.domain.special != "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of[place(c.sidecar)+c.domain.name+"|"+c.counter()]
	if e == nil || c.began > e.asked+promised.lease {
		l.world.violation(c, "admitted without asking, and no lease was there")
		return
	}
	e.spent += c.cost
	if count, burst := c.domain.most(); e.spent+e.former > max(count, burst)+c.cost {
		l.world.violation(c, "%d were spent of a lease, and the limit is %d", e.spent+e.former, max(count, burst))
	}
}

// counter is what its keys name.
func (c *call) counter() string {
	if c.domain.check {
		return "192.0.2." + c.user[1:]
	}
	return c.user
}
