package simulation

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

const (
	slotRanges = 64
	rangeSize  = 16384 / slotRanges
)

// slotMap is which server of a cluster has which slots. All servers know it at once.
type slotMap struct {
	servers []*server

	mu     sync.Mutex // guards all below
	owner  [slotRanges]*server
	target [slotRanges]*server // of slots that are on their way; nil: none
}

func newSlotMap(servers []*server) *slotMap {
	m := &slotMap{servers: servers}
	for i := range m.owner {
		m.owner[i] = servers[i*len(servers)/slotRanges]
	}
	return m
}

func (m *slotMap) at(i int) (owner, target *server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owner[i], m.target[i]
}

// answer refuses a command whose keys are elsewhere, as Redis Cluster does.
func (m *slotMap) answer(s *server, c *conn, name string, a [][]byte) (reply, bool) {
	switch name {
	case "CLUSTER":
		return m.show(), true
	case "ASKING":
		c.asking = true
		return status("OK"), true
	}
	keys := keysOf(name, a)
	if len(keys) == 0 {
		return nil, false
	}
	asking := c.asking
	c.asking = false
	slot := redis.SlotOf(keys[0])
	missing := 0
	for _, key := range keys {
		if redis.SlotOf(key) != slot {
			return refusal("CROSSSLOT Keys in request don't hash to the same slot"), true
		}
		if s.db.get(key) == nil {
			missing++
		}
	}
	return m.redirect(s, slot, asking, len(keys), missing)
}

func (m *slotMap) redirect(s *server, slot int, asking bool, keys, missing int) (reply, bool) {
	owner, target := m.at(slot / rangeSize)
	tryAgain := refusal("TRYAGAIN Multiple keys request during rehashing of slot")
	switch {
	case target == s && asking && keys > 1 && missing > 0:
		return tryAgain, true
	case target == s && asking:
		return nil, false
	case owner != s:
		return refusal(fmt.Sprintf("MOVED %d %s", slot, owner.name)), true
	case target == nil || missing == 0:
		return nil, false
	case missing < keys:
		return tryAgain, true
	}
	return refusal(fmt.Sprintf("ASK %d %s", slot, target.name)), true
}

// keysOf are the keys of a command.
func keysOf(name string, a [][]byte) (keys []string) {
	switch name {
	case "EVAL", "EVALSHA":
		n, _ := strconv.Atoi(string(a[1]))
		for _, key := range a[2 : 2+n] {
			keys = append(keys, string(key))
		}
	case "DEL", "UNLINK":
		for _, key := range a {
			keys = append(keys, string(key))
		}
	case "GET", "SET", "PEXPIRE", "PEXPIREAT", "ZADD", "ZCARD", "ZREM", "ZREMRANGEBYSCORE", "HSET", "HDEL", "HGETALL":
		keys = append(keys, string(a[0]))
	}
	return keys
}

// show is the reply to CLUSTER SLOTS.
func (m *slotMap) show() reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := []any{}
	for i := 0; i < slotRanges; {
		end := i
		for end < slotRanges && m.owner[end] == m.owner[i] {
			end++
		}
		host, port := m.owner[i].hostPort()
		all = append(all, []any{int64(i * rangeSize), int64(end*rangeSize - 1), []any{host, port, m.owner[i].name}})
		i = end
	}
	return all
}

// moveSlots moves some ranges to other servers, one key after the other.
func (w *world) moveSlots(f *fault) {
	r := w.s.stream(ofMoves + uint64(f.begins))
	ranges := 1 + int(f.size*slotRanges/2)
	for range ranges {
		i := r.IntN(slotRanges)
		owner, target := w.slots.at(i)
		to := w.servers[r.IntN(len(w.servers))]
		if to == owner || target != nil {
			continue
		}
		w.moveRange(i, owner, to, min(f.lasts/time.Duration(ranges)/4, 20*time.Millisecond))
	}
}

// moveRange moves one range.
func (w *world) moveRange(i int, from, to *server, pause time.Duration) {
	w.slots.mark(i, from, to)
	for {
		from.turn <- struct{}{}
		keys := from.db.keysIn(i)
		<-from.turn
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			elapse(pause)
			elapseUntil(func() bool { return from.isUp() && to.isUp() })
			w.moveKey(key, from, to)
		}
	}
	w.slots.mark(i, to, nil)
	w.trace.add("slots from %d on have moved from %s to %s", i*rangeSize, from.name, to.name)
}

func (m *slotMap) mark(i int, owner, target *server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner[i], m.target[i] = owner, target
}

// moveKey moves a key while neither server runs a command.
func (w *world) moveKey(key string, from, to *server) {
	first, second := from, to
	if first.name > second.name {
		first, second = second, first
	}
	first.turn <- struct{}{}
	second.turn <- struct{}{}
	if v := from.db.get(key); v != nil {
		to.db.values[key] = v
		delete(from.db.values, key)
	}
	<-second.turn
	<-first.turn
}

// keysIn are the keys of a range of slots.
func (d *database) keysIn(i int) (keys []string) {
	for _, key := range sorted(d.values) {
		if d.get(key) != nil && redis.SlotOf(key)/rangeSize == i {
			keys = append(keys, key)
		}
	}
	return keys
}
