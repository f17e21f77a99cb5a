// Package profiles is what is known about one identity beside the rule file: a block, a tier, limits of its own, a
// note. Profiles are kept in Redis beside the counters, cached here, and in force everywhere within a second. Without
// Redis they are kept in this process.
//
// A decision looks profiles up and never waits for more than one call: what is cached costs no call, and of what is not
// cached all are asked for at once. While Redis is away, what is cached holds, and identities that are not cached have
// no profile.
package profiles

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Kind is what an identity is.
type Kind uint8

// The kinds of identities.
const (
	User Kind = iota
	Tenant
	APIKey  // by its id
	Network // an address is the network of that address alone
	Secret  // an API key by the SHA-256 of what clients send, in hex
	kinds
)

var kindWords = [kinds]string{"user", "tenant", "api_key", "ip", "secret"}

// String is the word of the kind in the API and in keys.
func (k Kind) String() string {
	if k >= kinds {
		return "unknown"
	}
	return kindWords[k]
}

// Identity is whom a profile is about, in one domain. It is comparable.
type Identity struct {
	Domain  string
	Kind    Kind
	Name    string       // of all kinds but Network
	Network netip.Prefix // of Network: masked, and unmapped
}

// Text is the name, or the network as text: an address where it holds one alone.
func (i *Identity) Text() string {
	switch {
	case i.Kind != Network:
		return i.Name
	case i.Network.IsSingleIP():
		return i.Network.Addr().String()
	}
	return i.Network.String()
}

// class is the part of the index that means that there are profiles of this domain and kind.
func (i *Identity) class() string {
	if i.Kind != Network {
		return i.Domain + "|" + i.Kind.String()
	}
	family := "4/"
	if i.Network.Addr().Is6() {
		family = "6/"
	}
	return i.Domain + "|ip" + family + strconv.Itoa(i.Network.Bits())
}

// sameClass reports whether another one, nil for none, is of the same class. It may be false where it is.
func (i *Identity) sameClass(other *Identity) bool {
	return other != nil && i.Kind == other.Kind && i.Kind != Network && i.Domain == other.Domain
}

// Profile is what is known about an identity. A field that is not set leaves what the rule file has.
type Profile struct {
	Block  *Block    `json:"block,omitempty"`
	Tier   string    `json:"tier,omitempty"`
	Limits []Limit   `json:"limits,omitempty"` // in place of those of the rule file
	Note   string    `json:"note,omitempty"`
	By     string    `json:"by,omitempty"` // who changed it last
	At     time.Time `json:"at,omitzero"`  // when

	Key     *Key `json:"key,omitempty"`     // of Secret: whose key it is
	Control bool `json:"control,omitempty"` // the control plane keeps the profile, and puts its own back
	// of a profile that the control plane keeps: the tier and limits are an operator's, and stay while it has none
	Operator bool `json:"operator,omitempty"`
	// a sidecar has changed the block while no control ran: the next one takes the block, or its end, over
	Taken bool `json:"taken,omitempty"`
}

// Key is whose an API key is. Its tier and limits are in the profile of its id.
type Key struct {
	ID      string    `json:"id"`
	User    string    `json:"user"`
	Tier    string    `json:"tier,omitempty"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Revoked bool      `json:"revoked,omitempty"`
}

// Block refuses all requests of the identity, or lifts the blocks of the rule file that name it.
type Block struct {
	Lifted bool      `json:"lifted,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Until  time.Time `json:"until,omitzero"` // zero: for ever
}

// Limit is a limit of a profile. Its words are those of a rule file.
type Limit struct {
	Name      string        `json:"name,omitempty"`
	Unlimited bool          `json:"unlimited,omitempty"`
	Count     int64         `json:"count,omitempty"`
	Per       time.Duration `json:"per,omitempty"` // in nanoseconds
	Burst     int64         `json:"burst,omitempty"`
	Algorithm string        `json:"algorithm,omitempty"`
	// the windows are calendar months in the domain's time zone; Per is not used
	Month bool `json:"month,omitempty"`
}

// empty reports whether nothing is known any more.
func (r *Profile) empty() bool {
	return r.Block == nil && r.Tier == "" && len(r.Limits) == 0 && r.Note == "" && r.Key == nil
}

// Blocks reports whether a profile, nil for none, has a block, and not the end of one of the rules.
func (r *Profile) Blocks() bool { return r != nil && r.Block != nil && !r.Block.Lifted }

// limits reports whether a profile has a tier, or limits of its own.
func (r *Profile) limits() bool { return r.Tier != "" || len(r.Limits) > 0 }

// takenFor is how long the end of a block waits for a control that takes it over.
const takenFor = 30 * 24 * time.Hour

// traced is a profile, nil for none, as a sidecar writes it: an operator's change of a block leaves a trace, also where
// nothing else is left.
func traced(before, after *Profile, by string, at time.Time) *Profile {
	if blockOf(before) == blockOf(after) && (before == nil || !before.Taken) {
		return after
	}
	kept := Profile{By: by}
	if after != nil {
		kept = *after
	}
	kept.Taken, kept.At = true, at.UTC() // to the last digit: a control compares it with its own changes
	return &kept
}

// blockOf is the block of a profile, nil for none.
func blockOf(r *Profile) Block {
	if r == nil || r.Block == nil {
		return Block{}
	}
	b := *r.Block
	b.Reason += "." // no block is another thing than a block without a reason
	return b
}

// expires is when the profile is of no use any more; zero: never. A profile of a block alone ends with it.
func (r *Profile) expires() time.Time {
	if r.Taken && r.empty() {
		return r.At.Add(takenFor)
	}
	if r.Block == nil || r.Tier != "" || len(r.Limits) > 0 || r.Note != "" || r.Key != nil {
		return time.Time{}
	}
	return r.Block.Until
}

// Kinds are the kinds of identities that have profiles in one domain. A nil one has none.
type Kinds struct {
	filling  bool // profiles are put back into Redis: of the domain without a name
	has      [kinds]bool
	networks [2][]int // prefix lengths of networks, of IPv4 and IPv6
	uses     *uses    // of the cache, for the domain; nil: the kinds are in no catalog
}

// uses are how often the cache had the answer, for one domain.
type uses struct{ hits, misses atomic.Int64 }

// Use is how often the cache had the answer for a domain, since the start.
type Use struct {
	Domain       string
	Hits, Misses int64
}

// Has reports whether there may be profiles of a kind.
func (k *Kinds) Has(kind Kind) bool { return k != nil && k.has[kind] }

// Lengths are the prefix lengths of networks with profiles that an address may be in.
func (k *Kinds) Lengths(of netip.Addr) []int {
	if k == nil {
		return nil
	}
	if of.Is4() {
		return k.networks[0]
	}
	return k.networks[1]
}

// catalog is the kinds of all domains.
type catalog map[string]*Kinds

// catalogOf reads the classes of an index. It leaves out what is not a class.
func catalogOf(classes []string) catalog {
	c := catalog{}
	for _, class := range classes {
		at := strings.LastIndexByte(class, '|')
		if at < 0 {
			continue
		}
		one := kindsOf(class, class[at+1:])
		if one == nil {
			continue
		}
		domain := strings.Clone(class[:at])
		c[domain] = c[domain].and(one)
	}
	return c
}

// kindsOf is the kind that the last word of a class names; nil: none.
func kindsOf(class, word string) *Kinds {
	k := &Kinds{filling: class == fillingClass}
	if k.filling {
		return k
	}
	if length, is := strings.CutPrefix(word, "ip4/"); is {
		return k.network(0, 32, length)
	}
	if length, is := strings.CutPrefix(word, "ip6/"); is {
		return k.network(1, 128, length)
	}
	kind := slices.Index(kindWords[:], word)
	if kind < 0 || Kind(kind) == Network {
		return nil
	}
	k.has[kind] = true
	return k
}

// network adds networks of a prefix length, as Identity.class writes it. It returns nil for any other text.
func (k *Kinds) network(family, most int, length string) *Kinds {
	bits, err := strconv.Atoi(length)
	if err != nil || bits < 0 || bits > most || strconv.Itoa(bits) != length {
		return nil
	}
	k.has[Network] = true
	k.networks[family] = []int{bits}
	return k
}
