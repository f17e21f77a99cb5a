package simulation

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

// quorum is a master, its replica, and the sentinels that watch them.
type quorum struct {
	world *world

	mu     sync.Mutex // guards all below
	master *server
	epoch  int64
	busy   bool          // a failover is under way
	lag    time.Duration // of the replication
}

// watcher is what one sentinel knows.
type watcher struct {
	quorum *quorum
	name   string

	mu     sync.Mutex // guards all below
	master *server
	epoch  int64
}

const sentinels = 3

func (w *world) buildSentinels() {
	q := &quorum{world: w, master: w.servers[0], epoch: 1, lag: usualLatency}
	w.quorum = q
	for _, s := range w.servers {
		s.db.touched = func(key string) { q.replicate(s, key) }
	}
	w.servers[1].setReadOnly(true)
	for i := range sentinels {
		v := &watcher{quorum: q, name: fmt.Sprintf("sentinel-%d:26379", i), master: q.master, epoch: q.epoch}
		s := newServer(w.network, v.name, w.clock)
		s.role = v
		s.publishes = func(string, string) int64 { return 0 }
		s.onLost = func(string) {}
		s.start()
		q.world.watchers = append(q.world.watchers, v)
		w.sentinels = append(w.sentinels, s)
		w.places = append(w.places, v.name)
	}
}

// answer runs the commands of a sentinel.
func (v *watcher) answer(_ *server, _ *conn, name string, a [][]byte) (reply, bool) {
	if name != "SENTINEL" {
		return nil, false
	}
	v.mu.Lock()
	master, epoch := v.master, v.epoch
	v.mu.Unlock()
	host, port := master.hostPort()
	switch strings.ToLower(string(a[0])) {
	case "get-master-addr-by-name":
		return []string{host, strconv.FormatInt(port, 10)}, true
	case "master":
		return []string{"name", masterName, "ip", host, "config-epoch", strconv.FormatInt(epoch, 10)}, true
	case "sentinels":
		all := []any{}
		for _, other := range v.quorum.world.sentinels {
			if other.name != v.name {
				at, port := other.hostPort()
				all = append(all, []string{"ip", at, "port", strconv.FormatInt(port, 10)})
			}
		}
		return all, true
	}
	return refusal("ERR unknown subcommand"), true
}

// masterNow is the master that a majority of the sentinels agreed on last.
func (w *world) masterNow() *server {
	if w.quorum == nil {
		return w.servers[0]
	}
	w.quorum.mu.Lock()
	defer w.quorum.mu.Unlock()
	return w.quorum.master
}

func (w *world) replica() *server {
	if w.masterNow() == w.servers[0] {
		return w.servers[1]
	}
	return w.servers[0]
}

// change is what a replica gets to know of one key.
type change struct {
	at    time.Time // of its arrival
	key   string
	value *value // nil: it is gone
}

// replicate sends a key's value to the replica. Its caller holds the turn of the server.
func (q *quorum) replicate(from *server, key string) {
	q.mu.Lock()
	lag, master := q.lag, q.master
	q.mu.Unlock()
	if from != master {
		return
	}
	c := change{at: time.Now().Add(lag), key: key}
	if v := from.db.values[key]; v != nil {
		c.value = v.clone()
	}
	to := q.world.replica()
	to.mu.Lock()
	to.pending = append(to.pending, c)
	to.mu.Unlock()
}

func (v *value) clone() *value {
	other := *v
	other.hash, other.scores = maps.Clone(v.hash), maps.Clone(v.scores)
	return &other
}

// catchUp takes in what has arrived, and reports how much has not. Its caller holds the turn.
func (s *server) catchUp() (missing int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.pending) > 0 && !s.pending[0].at.After(now) {
		c := s.pending[0]
		s.pending = s.pending[1:]
		delete(s.db.values, c.key)
		if c.value != nil {
			s.db.values[c.key] = c.value
		}
	}
	return len(s.pending)
}

// failOver makes the replica the master. Where the master dies it does so first; else two masters take writes for a
// while.
func (w *world) failOver(f *fault) {
	if !w.quorum.begin() {
		return
	}
	defer w.quorum.end()
	former, next := w.masterNow(), w.replica()
	dies := f.kind == "master dies"
	if dies {
		w.restart(former, 1, false)
		elapse(f.lasts / 2)
	}
	elapseUntil(next.isUp)
	lost := w.promote(next)
	if dies && lost == 0 {
		w.trace.add("%s has all that %s had", next.name, former.name)
	} else {
		w.newLife(next.name+" is the master", func(l *life) { l.split = !dies })
	}
	w.spread(f, next)
	elapse(f.lasts / 4)
	w.demote(former, next)
	if !dies {
		w.newLife(former.name+" is a replica", func(l *life) { l.split = false })
		w.restart(former, 1, false) // the sentinels end its clients' connections
	}
	w.restart(former, -1, false)
}

func (q *quorum) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.busy
	q.busy = true
	return !was
}

func (q *quorum) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = false
}

// promote lets a replica be the master, and reports how many changes it never got.
func (w *world) promote(next *server) (lost int) {
	next.turn <- struct{}{}
	defer func() { <-next.turn }()
	lost = next.catchUp()
	next.mu.Lock()
	next.pending = nil
	next.mu.Unlock()
	next.setReadOnly(false)
	w.quorum.mu.Lock()
	w.quorum.master = next
	w.quorum.epoch++
	w.quorum.mu.Unlock()
	return lost
}

// spread lets each sentinel know of the master at another time.
func (w *world) spread(f *fault, next *server) {
	w.quorum.mu.Lock()
	epoch := w.quorum.epoch
	w.quorum.mu.Unlock()
	for i, v := range w.watchers {
		late := time.Duration(i) * f.lasts / 8
		time.AfterFunc(late, func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			if epoch > v.epoch {
				v.master, v.epoch = next, epoch
			}
		})
	}
}

// demote lets the former master be a replica, with all that the master holds.
func (w *world) demote(former, master *server) {
	former.turn <- struct{}{}
	former.setReadOnly(true)
	former.db.clear()
	<-former.turn
	master.turn <- struct{}{}
	copies := map[string]*value{}
	for key, v := range master.db.values {
		copies[key] = v.clone()
	}
	<-master.turn
	former.turn <- struct{}{}
	former.db.values = copies
	<-former.turn
}
