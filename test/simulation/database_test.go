package simulation

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"
)

// database is what a server holds. Its caller holds the server's turn.
type database struct {
	values  map[string]*value
	clock   func() time.Time
	wrote   func(key, before, after string) // of texts; nil: nothing is called
	touched func(key string)                // after a write; nil: nothing is called
	// endsAtOnce: a key whose last ms is the present one ends at once, as a SET of Valkey and of Redis 8 lets it.
	endsAtOnce bool
}

// value is a text, a list, a hash or a sorted set.
type value struct {
	text    string
	list    []string // never changed, only replaced
	hash    map[string]string
	scores  map[string]float64
	expires int64 // the last ms of its life; 0: it has none
}

// kind is its type as Redis names it.
func (v *value) kind() string {
	switch {
	case v.list != nil:
		return "list"
	case v.hash != nil:
		return "hash"
	case v.scores != nil:
		return "zset"
	}
	return "string"
}

// errWrongType is the reply to a command about another type.
const errWrongType = refusal("WRONGTYPE Operation against a key holding the wrong kind of value")

func newDatabase(clock func() time.Time) *database {
	return &database{values: map[string]*value{}, clock: clock}
}

func (d *database) clear() { clear(d.values) }

// get is a key's value, nil if the key is missing.
func (d *database) get(key string) *value {
	v := d.values[key]
	if v != nil && v.expires != 0 && d.clock().UnixMilli() > v.expires {
		delete(d.values, key)
		return nil
	}
	return v
}

// make is a key's value, an empty one if the key is missing.
func (d *database) make(key string) *value {
	v := d.get(key)
	if v == nil {
		v = &value{}
		d.values[key] = v
	}
	return v
}

func (d *database) text(key string) (string, bool) {
	v := d.get(key)
	if v == nil {
		return "", false
	}
	return v.text, true
}

func (d *database) set(key, text string) *value {
	before, _ := d.text(key)
	v := d.make(key)
	v.text, v.list, v.hash, v.scores = text, nil, nil, nil
	if d.wrote != nil {
		d.wrote(key, before, text)
	}
	return v
}

func (d *database) remove(key string) int64 {
	before, found := d.text(key)
	if !found {
		return 0
	}
	delete(d.values, key)
	if d.wrote != nil {
		d.wrote(key, before, "")
	}
	return 1
}

// reply is what a command answers: nil, int64, string, []string, status or refusal.
type (
	reply   any
	status  string
	refusal string
)

// command runs one that scripts call, too. It reports false where it does not know it.
func (d *database) command(name string, a []string) (reply, bool) {
	switch name {
	case "TIME":
		now := d.clock().UnixMicro()
		return []string{strconv.FormatInt(now/1e6, 10), strconv.FormatInt(now%1e6, 10)}, true
	case "SET":
		return d.setCommand(a), true
	case "DEL", "UNLINK":
		n := int64(0)
		for _, key := range a {
			n += d.remove(key)
		}
		return n, true
	case "PEXPIRE", "PEXPIREAT":
		return d.expire(name, a[0], a[1], int64(1)), true
	case "PEXPIRETIME":
		v := d.get(a[0])
		if v == nil {
			return int64(-2), true
		}
		return cmp.Or(v.expires, -1), true
	}
	if r, ok := d.textCommand(name, a); ok {
		return r, true
	}
	if r, ok := d.listCommand(name, a); ok {
		return r, true
	}
	return d.setsCommand(name, a)
}

func (d *database) setCommand(a []string) reply {
	before := int64(0)
	if v := d.get(a[0]); v != nil {
		before = v.expires
	}
	v := d.set(a[0], a[1])
	v.expires = 0
	switch {
	case len(a) == 3 && strings.EqualFold(a[2], "KEEPTTL"):
		v.expires = before
	case len(a) == 4:
		unit := map[string]string{"PX": "PEXPIRE", "PXAT": "PEXPIREAT"}[strings.ToUpper(a[2])]
		return d.expire(unit, a[0], a[3], status("OK"))
	}
	return status("OK")
}

// expire sets the last ms of a key's life. One that is over already ends at once.
func (d *database) expire(name, key, text string, done reply) reply {
	ms, err := strconv.ParseInt(text, 10, 64)
	v, now := d.get(key), d.clock().UnixMilli()
	switch {
	case err != nil:
		return refusal("ERR value is not an integer or out of range")
	case v == nil:
		return int64(0)
	case name == "PEXPIRE":
		ms += now
	}
	v.expires = ms
	if ms <= now && d.endsAtOnce {
		d.remove(key)
	}
	return done
}

func (d *database) textCommand(name string, a []string) (reply, bool) {
	if v := d.get(a[0]); v != nil && v.kind() != "string" {
		return errWrongType, name == "GET" || name == "INCRBY" || name == "DECRBY"
	}
	text, found := d.text(a[0])
	switch name {
	case "GET":
		if !found {
			return nil, true
		}
		return text, true
	case "INCRBY", "DECRBY":
		if !found {
			text = "0"
		}
		n, err := strconv.ParseInt(text, 10, 64)
		by, wrong := strconv.ParseInt(a[1], 10, 64)
		if err != nil || wrong != nil {
			return refusal("ERR value is not an integer or out of range"), true
		}
		if name == "DECRBY" {
			by = -by
		}
		d.set(a[0], strconv.FormatInt(n+by, 10))
		return n + by, true
	}
	return nil, false
}

// index reads a place in a text of that length; negative ones count from its end.
func index(text string, length int) int {
	n, _ := strconv.Atoi(text)
	if n < 0 {
		n += length
	}
	return max(n, 0)
}

func (d *database) setsCommand(name string, a []string) (reply, bool) {
	switch name {
	case "ZADD":
		return d.add(a), true
	case "ZCARD":
		v := d.get(a[0])
		if v == nil {
			return int64(0), true
		}
		return int64(len(v.scores)), true
	case "ZREM", "ZREMRANGEBYSCORE":
		return d.take(name, a), true
	case "HSET":
		v := d.make(a[0])
		if v.hash == nil {
			v.hash = map[string]string{}
		}
		_, found := v.hash[a[1]]
		v.hash[a[1]] = a[2]
		if found {
			return int64(0), true
		}
		return int64(1), true
	case "HDEL":
		if v := d.get(a[0]); v != nil {
			delete(v.hash, a[1])
		}
		return int64(1), true
	case "HGETALL":
		all := []string{}
		if v := d.get(a[0]); v != nil {
			for _, field := range sorted(v.hash) {
				all = append(all, field, v.hash[field])
			}
		}
		return all, true
	}
	return nil, false
}

func (d *database) add(a []string) reply {
	score, err := strconv.ParseFloat(a[1], 64)
	if err != nil {
		return refusal("ERR value is not a valid float")
	}
	v := d.make(a[0])
	if v.scores == nil {
		v.scores = map[string]float64{}
	}
	v.scores[a[2]] = score
	return int64(1)
}

func (d *database) take(name string, a []string) reply {
	v := d.get(a[0])
	if v == nil {
		return int64(0)
	}
	before := len(v.scores)
	if name == "ZREM" {
		delete(v.scores, a[1])
	} else {
		for member, score := range v.scores {
			if within(score, a[1], true) && within(score, a[2], false) {
				delete(v.scores, member)
			}
		}
	}
	if len(v.scores) == 0 {
		delete(d.values, a[0])
	}
	return int64(before - len(v.scores))
}

// within reports whether a score is on the right side of a bound such as 5, (5, -inf or +inf.
func within(score float64, bound string, above bool) bool {
	open := strings.HasPrefix(bound, "(")
	limit, err := strconv.ParseFloat(strings.TrimPrefix(bound, "("), 64)
	if err != nil {
		limit = math.NaN()
	}
	if !above {
		score, limit = -score, -limit
	}
	return score > limit || !open && score == limit
}
