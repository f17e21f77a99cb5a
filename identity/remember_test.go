package identity_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/identity"
)

func TestHowLongTokensAreRemembered(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // synctest's
	expires := func(d time.Duration) string {
		return sign("EdDSA", "ed", edKey, with(good, object{"exp": start.Add(d).Unix()}))
	}
	for name, c := range map[string]struct {
		token string
		after time.Duration
		hit   bool
		user  string
	}{
		"verified, 59 s":              {edToken, 59 * time.Second, true, "alice"},
		"verified, 60 s":              {edToken, 60 * time.Second, false, "alice"},
		"expiring, within its leeway": {expires(10 * time.Second), 39 * time.Second, true, "alice"},
		"expiring, after its leeway":  {expires(10 * time.Second), 40 * time.Second, false, ""},
		"bad signature, 29 s":         {edToken[:len(edToken)-10] + "AAAAAAAAAA", 29 * time.Second, true, ""},
		"bad signature, 30 s":         {edToken[:len(edToken)-10] + "AAAAAAAAAA", 30 * time.Second, false, ""},
		"unknown key":                 {sign("EdDSA", "x", edKey, good), 29 * time.Second, true, ""},
		"malformed":                   {"a.b.c", 29 * time.Second, true, ""},
		"not yet valid is forgotten": {sign("EdDSA", "ed", edKey,
			with(good, object{"nbf": start.Add(40 * time.Second).Unix()})), 9 * time.Second, false, ""},
		"not yet valid becomes valid": {sign("EdDSA", "ed", edKey,
			with(good, object{"nbf": start.Add(40 * time.Second).Unix()})), 10 * time.Second, false, "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, edKeys, func(t *testing.T, s *scene) {
				synctest.Wait()
				s.user(c.token)
				pass(c.after)
				user := s.user(c.token)
				if user != c.user {
					t.Errorf("after %s the token yields %q, want %q", c.after, user, c.user)
				}
				if hit := s.sets.Stats().Hits == 1; hit != c.hit {
					t.Errorf("after %s the token is remembered: %v, want %v", c.after, hit, c.hit)
				}
			})
		})
	}
}

func TestStatsCountTokens(t *testing.T) {
	play(t, edKeys, func(t *testing.T, s *scene) {
		synctest.Wait()
		for range 3 {
			s.user(edToken)
			s.user("worthless")
		}
		s.resolver.Resolve(&identity.Evidence{Headers: headers("authorization", "Bearer a, Bearer b")})
		want := identity.Stats{Hits: 4, Misses: 2, Invalid: 1, Refused: 1, Fetches: 1, Sets: 1, Verified: 1,
			Rejected: 1}
		if got := s.sets.Stats(); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

// TestTokensAreCountedByDomain: two domains of one configuration share what is remembered. A rule set that replaces
// another one counts on.
func TestTokensAreCountedByDomain(t *testing.T) {
	play(t, edKeys, func(t *testing.T, s *scene) {
		synctest.Wait()
		for _, domain := range []string{"shop", "mail", "shop"} {
			s.resolver = identity.New(jwtOnly(source), s.sets, identity.Options{Domain: domain})
			defer s.resolver.Close()
			s.user(edToken)
			s.user("worthless")
		}
		got := map[string]identity.Use{}
		for _, u := range s.sets.Uses() {
			got[u.Domain] = u
		}
		for _, want := range []identity.Use{{Domain: "shop", Hits: 2, Misses: 2}, {Domain: "mail", Hits: 2}} {
			if got[want.Domain] != want {
				t.Errorf("%+v, want %+v", got[want.Domain], want)
			}
		}
		if all := s.sets.Stats(); all.Hits != 4 || all.Misses != 2 {
			t.Errorf("stats %+v, want the sum of all domains", all)
		}
	})
}

// One issuer is there twice, for two audiences. A token that came before the keys is good as soon as they are there, as
// with one entry.
func TestATokenIsGoodOnceItsKeysAreThereWhereItsIssuerStandsTwice(t *testing.T) {
	for _, audiences := range [][]string{{"shop"}, {"shop", "partners"}} {
		synctest.Test(t, func(t *testing.T) {
			e := newEndpoint(edKeys)
			e.takes = time.Second // a cold start: the first fetch takes a second
			sets := identity.NewKeySets(identity.KeySetsConfig{Transport: e})
			defer sets.Close()
			cfg := identity.Config{Order: []identity.EvidenceKind{identity.JWT, identity.IP}}
			for _, audience := range audiences {
				cfg.Issuers = append(cfg.Issuers, identity.Issuer{Issuer: "https://issuer.example", JWKS: source,
					Audiences: []string{audience}})
			}
			r := identity.New(cfg, sets, identity.Options{})
			defer r.Close()
			s := &scene{endpoint: e, sets: sets, resolver: r}
			claims := with(good, object{"exp": time.Now().Add(time.Hour).Unix()})
			token := sign("EdDSA", "ed", edKey, claims)
			if user := s.user(token); user != "" {
				t.Fatalf("before its keys are there the token yields %q", user)
			}
			pass(2 * time.Second)
			if user := s.user(token); user != "alice" {
				t.Errorf("audiences %q: the keys are there, and the token that came before them yields %q, want alice",
					audiences, user)
			}
		})
	}
}
