package engine_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/store/memory"
)

// tokens is an issuer of its own with a key set in a file.
func tokens(tb testing.TB) (cfg *identity.Config, token string) {
	tb.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(tb.TempDir(), "keys.json")
	document := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","alg":"EdDSA","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	err = os.WriteFile(file, []byte(document), 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": "i", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix()})
	unsigned.Header["kid"] = "k"
	token, err = unsigned.SignedString(private)
	if err != nil {
		tb.Fatal(err)
	}
	return &identity.Config{Order: []identity.Kind{identity.JWT, identity.IP}, Issuers: []identity.Issuer{{Issuer: "i", JWKS: file}}}, token
}

// authz is an engine on memory that tells clients apart by their tokens, and a request of one.
func authz(tb testing.TB) (*engine.Engine, *descriptors.Request) {
	tb.Helper()
	cfg, token := tokens(tb)
	sets := identity.NewKeySets(identity.KeySetsConfig{})
	tb.Cleanup(sets.Close)
	e := engine.New(engine.Config{Store: memory.New(memory.Config{})})
	domain := descriptors.Domain{Name: "d", Identity: cfg, Rules: []descriptors.Rule{bucket("r", descriptors.ScopeUser, 1_000_000)}}
	set, problems := descriptors.Compile([]descriptors.Domain{domain}, descriptors.Options{
		Identity: func(_ string, of *identity.Config) *identity.Resolver {
			return identity.New(*of, sets, identity.Options{})
		},
	})
	if set == nil {
		tb.Fatalf("the test's own rules do not compile: %v", problems)
	}
	e.Use(set)
	return e, &descriptors.Request{
		Domain:   "d",
		Evidence: &identity.Evidence{Headers: []identity.Header{{Name: "authorization", Value: "Bearer " + token}}, Path: "/a/b?c", Peer: netip.MustParseAddr("192.0.2.1")},
		Subject:  &descriptors.Subject{Path: "/a/b?c", Method: "GET", Host: "shop.example"},
	}
}

// TestDecideOnATokenAllocations: from the decoded request to the verdict, with an identity that is cached.
func TestDecideOnATokenAllocations(t *testing.T) {
	e, req := authz(t)
	v := new(engine.Verdict)
	ctx := context.Background()
	got := testing.AllocsPerRun(1000, func() { e.Decide(ctx, req, v) })
	if v.Client.User != "alice" || len(v.Decisions) != 1 {
		t.Fatalf("client %+v with %d decisions, want alice with 1", v.Client, len(v.Decisions))
	}
	if got > 20 {
		t.Fatalf("a decision on a token allocates %v times, want at most 20", got)
	}
}

func BenchmarkDecideOnAToken(b *testing.B) {
	e, req := authz(b)
	v := new(engine.Verdict)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		e.Decide(ctx, req, v)
	}
}

// TestAPanicWhileMatchingAdmits: here of the clock that tokens are verified by, under rules that fail closed.
func TestAPanicWhileMatchingAdmits(t *testing.T) {
	cfg, token := tokens(t)
	sets := identity.NewKeySets(identity.KeySetsConfig{})
	t.Cleanup(sets.Close)
	domain := descriptors.Domain{Name: "shop", Identity: cfg, Rules: []descriptors.Rule{{
		Name: "per user", Scope: descriptors.ScopeUser, Action: descriptors.Block, OnFailure: descriptors.FailClosed,
	}}}
	broken := identity.Options{Now: func() time.Time { panic("of a test") }}
	set, problems := descriptors.Compile([]descriptors.Domain{domain}, descriptors.Options{
		Identity: func(_ string, cfg *identity.Config) *identity.Resolver { return identity.New(*cfg, sets, broken) },
	})
	if set == nil {
		t.Fatalf("the test's own rules do not compile: %v", problems)
	}
	panics, seen := 0, 0
	e := engine.New(engine.Config{
		Store: memory.New(memory.Config{}), OnPanic: func(any) { panics++ },
		OnVerdict: func(*descriptors.Request, *engine.Verdict) { seen++ },
	})
	defer e.Close()
	e.Use(set)
	evidence := &identity.Evidence{Headers: []identity.Header{{Name: "authorization", Value: "Bearer " + token}}}
	v := new(engine.Verdict)
	e.Decide(t.Context(), &descriptors.Request{Domain: "shop", Evidence: evidence, Subject: new(descriptors.Subject)}, v)
	if v.Refused || v.Degraded != "panic" || v.Outcome() != engine.Unknown || panics != 1 || seen != 1 {
		t.Errorf("refused %t, degraded %q, outcome %v, %d panics, seen %d times", v.Refused, v.Degraded, v.Outcome(), panics, seen)
	}
}
