package simulation

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// execute runs one command of a connection and appends its reply.
func (s *server) execute(c *conn, words [][]byte, out []byte) []byte {
	name := strings.ToUpper(string(words[0]))
	a := words[1:]
	if s.role != nil {
		if r, done := s.role.answer(s, c, name, a); done {
			return appendReply(out, r)
		}
	}
	switch name {
	case "PING":
		return append(out, "+PONG\r\n"...)
	case "EVAL", "EVALSHA":
		if n, _ := strconv.Atoi(string(a[1])); s.asked != nil {
			s.asked(c, a[2:2+n])
		}
		return appendReply(out, s.scripts.eval(name, a))
	case "SCRIPT":
		return appendReply(out, s.scripts.load(a[1]))
	case "SUBSCRIBE":
		s.subscribe(c, string(a[0]))
		out = appendHead(out, '*', 3)
		out = appendText(out, "subscribe")
		return appendHead(appendText(out, string(a[0])), ':', 1)
	case "PUBLISH":
		return appendReply(out, s.publishes(string(a[0]), string(a[1])))
	case "INFO":
		return appendText(out, "redis_version:7.4.0\r\nredis_mode:standalone\r\n")
	case "CLIENT", "SELECT", "AUTH":
		return append(out, "+OK\r\n"...)
	}
	texts := make([]string, len(a))
	for i := range a {
		texts[i] = string(a[i])
	}
	r, known := s.command(name, texts)
	if !known {
		r = refusal("ERR unknown command '" + name + "'")
	}
	return appendReply(out, r)
}

func appendReply(b []byte, r reply) []byte {
	switch r := r.(type) {
	case int64:
		return appendHead(b, ':', r)
	case string:
		return appendText(b, r)
	case status:
		return append(append(append(b, '+'), r...), "\r\n"...)
	case refusal:
		return append(append(append(b, '-'), r...), "\r\n"...)
	case []string:
		return appendTexts(b, r...)
	case []any:
		b = appendHead(b, '*', int64(len(r)))
		for _, item := range r {
			b = appendReply(b, item)
		}
		return b
	}
	return append(b, "$-1\r\n"...)
}

// memo keeps what was made of texts. Simulations that run at the same time share it.
type memo[V any] struct {
	mu   sync.Mutex // guards made
	made map[string]V
	make func(text string) V
}

func newMemo[V any](f func(text string) V) *memo[V] { return &memo[V]{made: map[string]V{}, make: f} }

// digests are the compiled scripts by their digests.
var digests = newMemo[*script](nil)

func (m *memo[V]) get(text []byte) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, found := m.made[string(text)]
	if !found {
		v = m.make(string(text))
		m.made[string(text)] = v
	}
	return v
}

func (m *memo[V]) put(key string, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made[key] = v
}

func (m *memo[V]) find(key string) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made[key]
}

// sorted are the keys of a map, in order: the order of a map itself is not that of the seed.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// errReadOnly is what a replica replies to a write.
const errReadOnly = refusal("READONLY You can't write against a read only replica.")

// command runs one that scripts call, too.
func (s *server) command(name string, a []string) (reply, bool) {
	switch name {
	case "SET", "DEL", "UNLINK", "PEXPIRE", "PEXPIREAT", "INCRBY", "DECRBY", "RPUSH", "LSET", "LTRIM", "LPOP", "ZADD",
		"ZREM", "ZREMRANGEBYSCORE", "HSET", "HDEL":
		if !s.mayWrite() {
			return errReadOnly, true
		}
		r, known := s.db.command(name, a)
		keys := a[:1]
		if name == "DEL" || name == "UNLINK" {
			keys = a
		}
		for _, key := range keys {
			if s.db.touched != nil {
				s.db.touched(key)
			}
		}
		return r, known
	}
	return s.db.command(name, a)
}
