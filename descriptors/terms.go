package descriptors

import (
	"net/netip"
	"slices"
	"strconv"
)

// dimension is one kind of condition.
type dimension uint8

const (
	dimEndpoint dimension = iota
	dimMethod
	dimUser
	dimTenant
	dimTier
	dimAuthenticated // by two names, true and false
	dimNetwork
	dimEntry
	dimensions
)

// terms numbers every value that a domain's conditions name, so that matching compares small numbers: a request is
// looked up once, for any number of rules.
type terms struct {
	names    [dimensions]map[string]int32 // methods, users, tenants and tiers
	entries  map[Entry]int32
	networks map[netip.Prefix]int32
	prefixes map[int32]netip.Prefix // networks, by their terms
	lengths  [2][]int               // of networks, for IPv4 and IPv6
	patterns patterns
	count    int32
}

func (t *terms) next() int32 {
	t.count++
	return t.count - 1
}

func (t *terms) name(d dimension, text string) int32 {
	if t.names[d] == nil {
		t.names[d] = map[string]int32{}
	}
	if id, known := t.names[d][text]; known {
		return id
	}
	id := t.next()
	t.names[d][text] = id
	return id
}

func (t *terms) entry(e Entry) int32 {
	if t.entries == nil {
		t.entries = map[Entry]int32{}
	}
	if id, known := t.entries[e]; known {
		return id
	}
	id := t.next()
	t.entries[e] = id
	return id
}

func (t *terms) network(network netip.Prefix) int32 {
	network = unmapNetwork(network)
	if t.networks == nil {
		t.networks, t.prefixes = map[netip.Prefix]int32{}, map[int32]netip.Prefix{}
	}
	if id, known := t.networks[network]; known {
		return id
	}
	lengths := &t.lengths[family(network)]
	if !slices.Contains(*lengths, network.Bits()) {
		*lengths = append(*lengths, network.Bits())
	}
	id := t.next()
	t.networks[network], t.prefixes[id] = id, network
	return id
}

func (t *terms) pattern(p *pattern) *pattern {
	known := t.patterns.intern(p)
	if known == p {
		p.term = t.next()
	}
	return known
}

// family is 0 for IPv4 and 1 for IPv6.
func family(network netip.Prefix) int {
	if network.Addr().Is4() {
		return 0
	}
	return 1
}

// facts are the terms that hold for a request.
type facts struct {
	ids  []int32
	from [dimensions + 1]int // those of dimension d are ids[from[d]:from[d+1]]
	seen []uint64            // one bit per term

	lifted lifts // conditions that make no block, because of a profile
	walk   pathWalk
}

// gather fills f with the terms that hold for a request.
func (t *terms) gather(f *facts, req *Request, a *attributes) {
	f.reset(int(t.count))
	f.open(dimEndpoint)
	if a.has(attrEndpoint) && t.patterns.byText != nil {
		t.patterns.match(&f.walk, a.text[attrEndpoint])
		for _, p := range f.walk.found {
			f.addFact(p.term)
		}
	}
	t.gatherName(f, dimMethod, a.text[attrMethod])
	t.gatherName(f, dimUser, a.text[attrUser])
	t.gatherName(f, dimTenant, a.text[attrTenant])
	t.gatherName(f, dimTier, a.text[attrTier])
	t.gatherName(f, dimAuthenticated, strconv.FormatBool(a.has(attrUser)))
	f.open(dimNetwork)
	t.gatherNetworks(f, a.network)
	f.open(dimEntry)
	t.gatherEntries(f, req, a)
	f.open(dimensions)
}

func (t *terms) gatherName(f *facts, d dimension, text string) {
	f.open(d)
	if text == "" || t.names[d] == nil {
		return
	}
	if id, known := t.names[d][text]; known {
		f.addFact(id)
	}
}

// gatherNetworks adds the networks that contain the client's address or network.
func (t *terms) gatherNetworks(f *facts, network netip.Prefix) {
	if t.networks == nil || !network.IsValid() {
		return
	}
	for _, bits := range t.lengths[family(network)] {
		if bits > network.Bits() {
			continue
		}
		if id, known := t.networks[netip.PrefixFrom(network.Addr(), bits).Masked()]; known {
			f.addFact(id)
		}
	}
}

func (t *terms) gatherEntries(f *facts, req *Request, a *attributes) {
	if t.entries == nil {
		return
	}
	if req.Subject != nil {
		t.gatherSubject(f, req.Subject)
		return
	}
	for i := range req.Descriptors {
		if a.skips(i) {
			continue
		}
		for _, e := range req.Descriptors[i].Entries {
			t.gatherEntry(f, e)
		}
	}
}

// reset empties f for that many terms. It clears what the last request set and no more, so that its cost does not grow
// with the number of terms.
func (f *facts) reset(terms int) {
	for _, id := range f.ids {
		f.seen[id/64] = 0
	}
	f.ids = f.ids[:0]
	words := (terms + 63) / 64
	if cap(f.seen) < words {
		f.seen = make([]uint64, words)
	}
	f.seen = f.seen[:words]
}

// open begins the facts of a dimension. Dimensions are opened in order, and so is the end.
func (f *facts) open(d dimension) { f.from[d] = len(f.ids) }

func (f *facts) addFact(id int32) {
	if f.holds(id) {
		return
	}
	f.seen[id/64] |= 1 << (id % 64)
	f.ids = append(f.ids, id)
}

func (f *facts) holds(id int32) bool { return f.seen[id/64]&(1<<(id%64)) != 0 }

func (f *facts) of(d dimension) []int32 { return f.ids[f.from[d]:f.from[d+1]] }
