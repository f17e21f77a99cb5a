//go:build !race

// Allocations and a million of anything: the race detector would distort the first and take minutes for the second.

package identity_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/spillway-mesh/spillway/identity"
)

// realistic are headers as a browser sends them.
func realistic(authorization string) []identity.Header {
	all := headers(":authority", "shop.example", ":path", "/search?q=1", ":method", "POST", ":scheme", "https")
	for i := range 12 {
		all = append(all, identity.Header{Name: fmt.Sprintf("x-header-%d", i), Value: "some value"})
	}
	return append(all, headers("x-forwarded-for", "9.9.9.9, 203.0.113.7, 10.0.0.1", "authorization", authorization)...)
}

func everything(t testing.TB) identity.Config {
	return identity.Config{
		Order:    []identity.EvidenceKind{identity.JWT, identity.APIKey, identity.MTLS, identity.IP},
		Issuers:  []identity.Issuer{issuer(writeKeys(t, testKeys()))},
		Keys:     keysConfig(),
		ClientIP: identity.AddressConfig{TrustedHops: 2},
	}
}

func TestKnownClientsCostFewAllocations(t *testing.T) {
	r, _ := resolver(t, everything(t), atNoon)
	for name, c := range map[string]struct {
		ev    identity.Evidence
		bound float64
	}{
		"token": {identity.Evidence{Headers: realistic("Bearer " + sign("RS256", "rsa", rsaKey(), good)),
			Peer: peer}, 1},
		"worthless token": {identity.Evidence{Headers: realistic("Bearer " + sign("RS256", "rsa", otherRSA(), good)),
			Peer: peer}, 1},
		"API key": {identity.Evidence{Headers: append(realistic(""), headers("x-api-key", "secret")...), Peer: peer},
			1},
		"address": {identity.Evidence{Headers: realistic(""), Peer: peer}, 0},
		"refused": {identity.Evidence{Headers: realistic("Bearer a,Bearer b"), Peer: peer}, 0},
	} {
		if got := testing.AllocsPerRun(1000, func() { r.Resolve(&c.ev) }); got > c.bound {
			t.Errorf("%s: %v allocations, want %v at most", name, got, c.bound)
		}
	}
}

func TestAMillionIdentitiesNeedBoundedMemory(t *testing.T) {
	r, sets := resolver(t, everything(t), atNoon)
	before := heap()
	random := sha256.Sum256([]byte("seed"))
	for i := range uint64(1_000_000) {
		binary.BigEndian.PutUint64(random[:], i)
		text := base64.RawURLEncoding.EncodeToString(random[:])
		ev := identity.Evidence{Headers: headers("authorization", "Bearer "+text+"."+text+"."+text, "x-forwarded-for",
			fmt.Sprintf("2001:db8::%x, ::1", i&0xffff)), Peer: peer}
		r.Resolve(&ev)
	}
	stats := sets.Stats()
	if stats.Misses != 1_000_000 || stats.Rejected > 10_000 || stats.Evicted < 900_000 {
		t.Errorf("%+v: want a million misses, 10,000 remembered at most and the others counted", stats)
	}
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("a million identities left %d bytes, want 8 MiB at most", grown)
	}
	if got, _ := r.Resolve(&identity.Evidence{Headers: headers("authorization",
		"Bearer "+sign("EdDSA", "ed", edKey, good))}); got.User != "alice" {
		t.Errorf("after them, a good token yields %q", got.User)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkResolve(b *testing.B) {
	r, _ := resolver(b, everything(b), atNoon)
	for _, c := range []struct {
		name string
		ev   identity.Evidence
	}{
		{"token", identity.Evidence{Headers: realistic("Bearer " + sign("RS256", "rsa", rsaKey(), good)), Peer: peer}},
		{"key", identity.Evidence{Headers: append(realistic(""), headers("x-api-key", "secret")...), Peer: peer}},
		{"address", identity.Evidence{Headers: realistic(""), Peer: peer}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Resolve(&c.ev)
			}
		})
	}
}

// BenchmarkFirstSeen measures tokens that are not remembered, and beside it the check of their signatures alone.
func BenchmarkFirstSeen(b *testing.B) {
	for _, c := range []struct {
		alg, kid string
		key      any
	}{{"RS256", "rsa", rsaKey()}, {"ES256", "p256", p256Key()}, {"EdDSA", "ed", edKey}} {
		sets := identity.NewKeySets(identity.KeySetsConfig{Verified: 1}) // one in each shard
		b.Cleanup(sets.Close)
		r := identity.New(everything(b), sets, identity.Options{Now: atNoon})
		var tokens []identity.Evidence
		for i := range 256 {
			token := sign(c.alg, c.kid, c.key, with(good, object{"jti": i}))
			tokens = append(tokens, identity.Evidence{Headers: realistic("Bearer " + token), Peer: peer})
		}
		b.Run(c.alg, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if client, _ := r.Resolve(&tokens[i%len(tokens)]); client.User == "" {
					b.Fatal("the token yields nothing")
				}
			}
		})
		if got := sets.Stats().Hits; got != 0 {
			b.Fatalf("%d tokens were remembered: this measures something else", got)
		}
		b.Run(c.alg+" signature alone", func(b *testing.B) {
			benchmarkSignature(b, c.alg, c.key, sign(c.alg, c.kid, c.key, good))
		})
	}
}

// BenchmarkAllButTheSignature measures tokens that are not remembered and whose key is not there: what a first token
// costs besides its signature.
func BenchmarkAllButTheSignature(b *testing.B) {
	sets := identity.NewKeySets(identity.KeySetsConfig{Rejected: 1})
	b.Cleanup(sets.Close)
	r := identity.New(everything(b), sets, identity.Options{Now: atNoon})
	var tokens []identity.Evidence
	for i := range 256 {
		tokens = append(tokens, identity.Evidence{Headers: realistic("Bearer " + missing(i)), Peer: peer})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Resolve(&tokens[i%len(tokens)])
	}
}
