package journal

import "hash/maphash"

// key is what rows of a table are told apart by.
type key struct {
	minute  uint32
	outcome uint8 // with furtherBit
	kind    Kind  // of value, where it is an identity
	domain  string
	rule    string
	value   string // of an identity, or an endpoint

	domainHash, ruleHash, valueHash uint64
}

// row is one row of a table. Its texts are in the table, one after the other: domain, rule and value.
type row struct {
	hash           uint64
	requests, cost int64 // of whole requests
	charged        int64 // what the rule was charged
	minute         uint32
	at             uint32    // where its texts begin
	ends           [3]uint16 // of the texts, from there
	outcome        uint8     // with furtherBit
	kind           Kind
}

// furtherBit in the outcome of a row is that of a rule that is not the first of its requests: the row of the first one
// counts the requests themselves.
const furtherBit = 1 << 7

const (
	rowBytes  = 48 // of a row
	slotBytes = 4  // of a place of the index, of which a row has at least two
)

// amount is what is added to a row.
type amount struct{ requests, cost, charged int64 }

// seed of all tables: a client cannot choose texts that meet in one place.
var seed = maphash.MakeSeed()

// table adds up numbers by key. It holds no pointers, and it never takes more memory than it was made with.
type table struct {
	rows  []row
	index []uint32 // the number of a row from 1, by its hash; 0: free
	text  []byte
}

// newTable makes a table for that many rows, with that much text in all.
func newTable(rows, text int) *table {
	places := 1
	for places < 2*rows {
		places *= 2
	}
	t := new(table)
	t.rows, t.index, t.text = roomOf[row](t, rows)[:0], roomOf[uint32](t, places), roomOf[byte](t, text)[:0]
	return t
}

// bytes returns how much memory the table takes.
func (t *table) bytes() int64 {
	return int64(cap(t.rows)*rowBytes + len(t.index)*slotBytes + cap(t.text))
}

// of returns the key of a value, and of what kind of value it is.
func (k key) of(kind Kind, value string) key {
	k.kind, k.value, k.valueHash = kind, value, maphash.String(seed, value)
	return k
}

// under returns the key of a rule.
func (k key) under(rule string, further bool) key {
	if rule != k.rule { // else its hash is known
		k.rule, k.ruleHash = rule, maphash.String(seed, rule)
	}
	if further {
		k.outcome |= furtherBit
	}
	return k
}

func (k *key) hash() uint64 {
	h := (k.valueHash*31^k.domainHash)*31 ^ k.ruleHash
	h ^= uint64(k.minute)<<16 | uint64(k.outcome)<<8 | uint64(k.kind)
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// find returns the number of the row of a key, or -1, and the place of the index where it is or would be.
func (t *table) find(k *key, hash uint64) (at int, place uint64) {
	mask := uint64(len(t.index) - 1)
	for place = hash & mask; ; place = (place + 1) & mask {
		n := t.index[place]
		if n == 0 {
			return -1, place
		}
		if r := &t.rows[n-1]; r.hash == hash && t.is(r, k) {
			return int(n - 1), place
		}
	}
}

func (t *table) is(r *row, k *key) bool {
	if r.minute != k.minute || r.outcome != k.outcome || r.kind != k.kind {
		return false
	}
	domain, rule, value := t.texts(r)
	return string(domain) == k.domain && string(rule) == k.rule && string(value) == k.value
}

// texts returns the texts of a row, which are valid until the table is emptied.
func (t *table) texts(r *row) (domain, rule, value []byte) {
	text := t.text[r.at:]
	return text[:r.ends[0]], text[r.ends[0]:r.ends[1]], text[r.ends[1]:r.ends[2]]
}

// add adds to the row of a key and returns the row's number. A new row is made only while one in `spare` parts of the
// table stays free; -1: it was not made.
func (t *table) add(k *key, n amount, spare int) int {
	hash := k.hash()
	at, place := t.find(k, hash)
	if at < 0 {
		at = t.insert(k, hash, place, spare)
	}
	if at >= 0 {
		r := &t.rows[at]
		r.requests += n.requests
		r.cost += n.cost
		r.charged += n.charged
	}
	return at
}

func (t *table) insert(k *key, hash, place uint64, spare int) int {
	need := len(k.domain) + len(k.rule) + len(k.value)
	rows, text := cap(t.rows), cap(t.text)
	if spare > 0 {
		rows, text = rows-rows/spare, text-text/spare
	}
	if len(t.rows) >= rows || len(t.text)+need > text || need > maxTexts {
		return -1
	}
	at := uint32(len(t.text))
	t.text = append(append(append(t.text, k.domain...), k.rule...), k.value...)
	rule := len(k.domain) + len(k.rule)
	t.rows = append(t.rows, row{
		hash: hash, minute: k.minute, outcome: k.outcome, kind: k.kind, at: at,
		ends: [3]uint16{uint16(len(k.domain)), uint16(rule), uint16(need)},
	})
	t.index[place] = uint32(len(t.rows))
	return len(t.rows) - 1
}

// maxTexts is the longest texts of a row together, in bytes.
const maxTexts = 4 << 10

// half reports whether a half of the table is taken, by rows or by text.
func (t *table) half() bool { return len(t.rows) >= cap(t.rows)/2 || len(t.text) >= cap(t.text)/2 }

// empty forgets all rows and keeps the memory.
func (t *table) empty() {
	if len(t.rows) == 0 {
		return
	}
	t.rows, t.text = t.rows[:0], t.text[:0]
	clear(t.index)
}
