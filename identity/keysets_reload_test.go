package identity_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/identity"
)

func TestSetsOutliveReloads(t *testing.T) {
	play(t, edKeys, func(t *testing.T, s *scene) {
		synctest.Wait()
		s.user(edToken)
		second := identity.New(jwtOnly(source), s.sets, identity.Options{})
		s.resolver.Close()
		first := s.resolver
		s.resolver = second
		if user := s.user(edToken); user != "alice" {
			t.Errorf("after a reload the token yields %q", user)
		}
		if stats := s.sets.Stats(); stats.Fetches != 1 || stats.Hits != 1 || stats.Sets != 1 {
			t.Errorf("%+v: want one fetch, and the token remembered across a reload that changes nothing", stats)
		}
		second.Close()
		if got := s.sets.Stats().Sets; got != 0 {
			t.Errorf("%d sets are kept that are not used", got)
		}
		pass(time.Hour)
		if got := len(s.asked()); got != 1 {
			t.Errorf("%d fetches, want none for a set that is not used", got)
		}
		s.resolver = first
		if user := s.user(edToken); user != "alice" {
			t.Errorf("a request of the old rules yields %q", user)
		}
	})
}

func TestAChangedIssuerForgetsWhatItsTokensYielded(t *testing.T) {
	play(t, edKeys, func(t *testing.T, s *scene) {
		synctest.Wait()
		s.user(edToken)
		cfg := jwtOnly(source)
		cfg.Issuers[0].UserClaim = "org_id"
		old := s.resolver
		s.resolver = identity.New(cfg, s.sets, identity.Options{})
		old.Close()
		if user := s.user(edToken); user != "acme" {
			t.Errorf("after the user's claim changed the token yields %q, want acme", user)
		}
	})
}

func TestOnRefreshShowsNoPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type refresh struct {
			source string
			keys   int
			failed bool
		}
		seen := make(chan refresh, 10)
		e := newEndpoint(edKeys)
		sets := identity.NewKeySets(identity.KeySetsConfig{Transport: e, OnRefresh: func(source string, keys int,
			err error) {
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the password stands in %q", err)
			}
			seen <- refresh{source, keys, err != nil}
		}})
		defer sets.Close()
		r := identity.New(jwtOnly("https://u:hunter2@issuer.example/k?key=hunter2"), sets, identity.Options{})
		defer r.Close()
		synctest.Wait()
		e.set(func(e *endpoint) { e.err = context.DeadlineExceeded })
		pass(5 * time.Minute)
		const shown = "https://u:xxxxx@issuer.example/k"
		if got, want := <-seen, (refresh{shown, 1, false}); got != want {
			t.Errorf("seen of %+v, want %+v", got, want)
		}
		if got, want := <-seen, (refresh{shown, 1, true}); got != want {
			t.Errorf("seen of %+v, want %+v", got, want)
		}
	})
}
