package fleet

import "strings"

// ring is servers that know nothing of each other. Each key has its place on one of them, by its hash tag, and keeps it while that
// server is away: its counts would be lost on another one, and every client would have a fresh limit.
type ring struct {
	shards []*Node
	hashes []uint64 // of the shards' addresses
}

func newRing(f *Fleet) *ring {
	r := &ring{}
	for _, address := range f.servers.Addresses {
		r.shards = append(r.shards, newSolo(f, address).Node)
		r.hashes = append(r.hashes, hash64(address))
	}
	return r
}

// Place is by highest random weight: of all shards, the one whose address goes best with the tag. A shard that is added takes its part
// of the keys evenly from the others, and the order in which the shards are listed does not matter.
func (r *ring) Place(key string) (*Node, int) {
	tag := hash64(hashTag(key))
	best, at := uint64(0), 0
	for i, h := range r.hashes {
		if weight := mix64(tag ^ h); i == 0 || weight > best {
			best, at = weight, i
		}
	}
	return r.shards[at], at
}

// Nodes are the shards.
func (r *ring) Nodes() []*Node { return r.shards }

// Close ends the connections.
func (r *ring) Close() {
	for _, n := range r.shards {
		n.close()
	}
}

// hashTag is the part of a key that chooses its place, as in a cluster: what stands between the first { and the next }, if that is
// something, else the whole key.
func hashTag(key string) string {
	open := strings.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	end := strings.IndexByte(key[open+1:], '}')
	if end <= 0 {
		return key
	}
	return key[open+1 : open+1+end]
}

// hash64 and mix64 place keys, so they may never change: FNV-1a, and a finisher that spreads it over all bits.
func hash64(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
