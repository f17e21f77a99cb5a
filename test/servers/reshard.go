package servers

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
)

// MoveSlots gives the first n slots of a master, with their keys, to another one, one by one while both serve.
func (c *RedisCluster) MoveSlots(t testing.TB, from, to *Redis, n int) {
	t.Helper()
	all := c.Slots(t, from)
	if len(all) < n {
		t.Fatalf("%s has %d slots, of which %d cannot move", from.Addr, len(all), n)
	}
	m := move{from: from.id(t), to: to, toID: to.id(t), source: from.longDial(t), target: to.longDial(t)}
	defer m.source.Close()
	defer m.target.Close()
	for _, slot := range all[:n] {
		err := m.slot(strconv.Itoa(slot))
		if err != nil {
			t.Fatalf("move slot %d from %s to %s: %v", slot, from.Addr, to.Addr, err)
		}
	}
}

func (r *Redis) longDial(t testing.TB) *link {
	t.Helper()
	l, err := r.dial(longEnough)
	if err != nil {
		t.Fatalf("dial redis-server on %s: %v", r.Addr, err)
	}
	return l
}

// move is slots on their way from one master to another.
type move struct {
	from           string // id
	to             *Redis
	toID           string
	source, target *link
}

func (m *move) slot(slot string) error {
	steps := []func() error{
		func() error { return m.set(m.target, slot, "IMPORTING", m.from) },
		func() error { return m.set(m.source, slot, "MIGRATING", m.toID) },
		func() error { return m.keys(slot) },
		// The new owner first: were it the old one, the slot would be without an owner for a moment.
		func() error { return m.set(m.target, slot, "NODE", m.toID) },
		func() error { return m.set(m.source, slot, "NODE", m.toID) },
	}
	for _, step := range steps {
		err := step()
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *move) set(end *link, slot, state, id string) error {
	_, err := end.do("CLUSTER", "SETSLOT", slot, state, id)
	return err
}

// keys moves the keys of a slot. None is added meanwhile: the source sends clients on that ask for a key it has not.
func (m *move) keys(slot string) error {
	host, port, _ := net.SplitHostPort(m.to.Addr)
	command := []string{"MIGRATE", host, port, "", "0", "5000"}
	if m.to.password() != "" {
		command = append(command, "AUTH", m.to.password())
	}
	command = append(command, "KEYS")
	for {
		reply, err := m.source.do("CLUSTER", "GETKEYSINSLOT", slot, "100")
		if err != nil {
			return err
		}
		keys, _ := reply.([]any)
		if len(keys) == 0 {
			return nil
		}
		batch := slices.Clone(command)
		for _, key := range keys {
			batch = append(batch, fmt.Sprint(key))
		}
		_, err = m.source.do(batch...)
		if err != nil {
			return err
		}
	}
}
