package redis

import "strings"

// heaviest is the place of a key among the servers of a ring, by highest random weight: the server whose address goes
// best with the key's hash tag. A key keeps its place while that server is away: its counts would be lost on another
// one, and every client would have a fresh limit. A server that is added takes its part of the keys evenly from the
// others, and the order of the servers does not matter.
func heaviest(hashes []uint64, key string) int {
	tag := hash64(hashTag(key))
	best, at := uint64(0), 0
	for i, h := range hashes {
		if weight := mix64(tag ^ h); i == 0 || weight > best {
			best, at = weight, i
		}
	}
	return at
}

// hashTag is the part of a key that chooses its place, as in a cluster: what stands between the first { and the next
// }, if that is something, else the whole key.
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
