package profiles

import (
	"context"
	"net/netip"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
)

// Any reports whether there are profiles in a domain.
func (p *Store) Any(domain string) bool { return p.Kinds(domain) != nil }

// lookup is the identities of one request that are looked up.
type lookup struct {
	profiles *Store
	kinds    *Kinds     // of the domain
	cold     []Identity // that are not cached
	to       []**descriptors.Profile
}

// Look fills in the profiles of those who ask. Those that are not cached are asked for together.
func (p *Store) Look(ctx context.Context, domain string, who *descriptors.Who, found *descriptors.Profiles) bool {
	kinds := p.Kinds(domain)
	l := lookup{profiles: p, kinds: kinds}
	l.name(Identity{Domain: domain, Kind: Tenant, Name: who.Tenant}, &found.Tenant)
	l.name(Identity{Domain: domain, Kind: User, Name: who.User}, &found.User)
	l.name(Identity{Domain: domain, Kind: APIKey, Name: who.APIKey}, &found.APIKey)
	if kinds.Has(Network) && who.Address.IsValid() {
		for _, bits := range kinds.Lengths(who.Address.Addr()) {
			if bits <= who.Address.Bits() {
				network := netip.PrefixFrom(who.Address.Addr(), bits).Masked()
				l.find(Identity{Domain: domain, Kind: Network, Network: network}, &found.Address)
			}
		}
	}
	if len(l.cold) > 0 {
		for i, value := range p.Ask(ctx, l.cold) {
			put(value, l.to[i])
		}
	}
	return *found != descriptors.Profiles{}
}

// name looks up an identity that has a name.
func (l *lookup) name(id Identity, to **descriptors.Profile) {
	if id.Name != "" && l.kinds.Has(id.Kind) {
		l.find(id, to)
	}
}

// find takes what is cached about an identity, or notes that it has to be asked for.
func (l *lookup) find(id Identity, to **descriptors.Profile) {
	value, fresh := l.profiles.cached(l.kinds, &id)
	if fresh {
		put(value, to)
		return
	}
	l.cold, l.to = append(l.cold, id), append(l.to, to)
}

// put fills in a profile. Of several networks that hold an address, the smallest that has a profile counts; a block of
// any of them holds, as long as it lasts.
func put(value any, to **descriptors.Profile) {
	r, is := value.(*descriptors.Profile)
	if is && (*to == nil || goesBefore(r, *to, time.Now())) {
		*to = r
	}
}

// goesBefore reports whether a profile counts in place of another one of the same request.
func goesBefore(r, other *descriptors.Profile, now time.Time) bool {
	blocks := func(r *descriptors.Profile) bool { return r.Blocked && (r.Until.IsZero() || now.Before(r.Until)) }
	if blocks(r) != blocks(other) {
		return blocks(r)
	}
	return bitsOf(r) > bitsOf(other)
}

// bitsOf is the length of the network that a profile is about: an address has the longest.
func bitsOf(r *descriptors.Profile) int {
	network, err := netip.ParsePrefix(r.Name)
	if err != nil {
		return 128
	}
	return network.Bits()
}
