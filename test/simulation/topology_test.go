package simulation

import (
	"fmt"
	"strings"
	"time"
)

// role is what a server is beside others.
type role interface {
	// answer runs a command of the topology, and refuses one that another server has to run. It reports false where the
	// server has to run it as a single server.
	answer(s *server, c *conn, name string, a [][]byte) (reply, bool)
}

// The kinds of topologies, as REDIS_TYPE names them.
const (
	single   = "single"
	sentinel = "sentinel"
	cluster  = "cluster"
)

// masterName is what sentinels call the master.
const masterName = "spillway"

// build makes the servers.
func (w *world) build() {
	counts := map[string]int{single: 1, sentinel: 2, cluster: 3}
	for i := range counts[w.s.kind] {
		s := newServer(w.network, fmt.Sprintf("redis-%d:6379", i), w.clock)
		s.db.wrote, s.db.endsAtOnce = w.ledger.wrote, w.s.seed%2 == 0
		s.asked = w.leases.asked
		s.publishes = w.publish
		s.onLost = func(what string) { w.trace.add("%s are lost with their connection", what) }
		w.servers = append(w.servers, s)
		w.places = append(w.places, s.name)
	}
	switch w.s.kind {
	case sentinel:
		w.buildSentinels()
	case cluster:
		w.slots = newSlotMap(w.servers)
		for _, s := range w.servers {
			s.role = w.slots
		}
	}
	for i := range w.s.sidecars {
		for _, to := range w.places {
			l := w.network.link(place(i), to)
			l.up.latency, l.down.latency = w.s.latency, w.s.latency
		}
	}
	for _, s := range w.servers {
		s.start()
	}
}

// environ are the settings by which a sidecar finds the servers.
func (w *world) environ() []string {
	addresses := w.places
	if w.s.kind == sentinel {
		addresses = append([]string{masterName}, w.places[len(w.servers):]...)
	}
	return []string{"REDIS_TYPE=" + w.s.kind, "REDIS_URL=" + strings.Join(addresses, ",")}
}

// publish gives a message to the subscribers of all servers: those forward it to each other.
func (w *world) publish(channel, text string) (n int64) {
	for _, s := range w.servers {
		n += s.hand(channel, text)
	}
	return n
}

// restart ends a server, and starts it again when no fault keeps it down.
func (w *world) restart(s *server, by int, empty bool) {
	switch down := s.downBy(by); {
	case by > 0 && down == 1:
		s.stop()
	case by < 0 && down == 0:
		s.start()
	}
	if by > 0 || !empty {
		return
	}
	s.empty()
	if w.s.kind == sentinel {
		w.demote(w.replica(), w.masterNow()) // it takes all from the master again
		if s != w.masterNow() {
			return
		}
	}
	w.newLife(s.name+" has lost everything", nil)
}

// elapseUntil lets time pass until a condition holds.
func elapseUntil(holds func() bool) {
	for !holds() {
		elapse(20 * time.Millisecond)
	}
}
