package descriptors

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// wholeDomain has a key of every kind: rules of several scopes, a penalty, accounts, a tree, a shared counter.
var wholeDomain = []string{
	"rule everyone scope=global limit=9/1s",
	"rule people scope=user limit=9/1s,day:9/24h penalty=2/1m/1m",
	"rule places scope=tenant+endpoint limit=9/1s",
	"rule hosts scope=ip limit=9/1s",
	"user alice limits=5/1s",
	"tenant acme limits=5/1s",
	"key ci limits=5/1s",
	"node user : 9/minute",
	"node tenant > path : 9/minute",
	"node user=a* : 9/minute share",
}

func compileWhole(t *testing.T, secret string, coLocate bool) *Set {
	t.Helper()
	s := script{domain: Domain{Name: "shop", CoLocate: coLocate}, opt: Options{KeySecret: []byte(secret)}}
	for _, line := range wholeDomain {
		s.configure(t, strings.Fields(line))
	}
	return s.compile(t)
}

// wholeRequest comes over either door, with parts that look alike, an override at times, and at times no entry at all.
func wholeRequest(r *rand.Rand) *Request {
	names := []string{"alice", "acme", "ci", "shop", "", "~", "|", "a|b", "}~|a", "{shop}", ":", "a"}
	name := func() string { return names[r.IntN(len(names))] }
	if r.IntN(3) == 0 {
		subject := &Subject{Path: "/" + name()}
		subject.Client.User, subject.Client.Tenant, subject.Client.Key = name(), name(), name()
		return &Request{Domain: "shop", Subject: subject}
	}
	req := &Request{Domain: "shop"}
	for range 1 + r.IntN(3) {
		d := Descriptor{Entries: []Entry{{"user", name()}}}
		switch r.IntN(4) {
		case 0:
			d.Entries = []Entry{{"tenant", name()}, {"path", name()}}
		case 1:
			d.Entries = nil
		case 2:
			d.Entries = append(d.Entries, Entry{name(), name()})
		}
		if r.IntN(2) == 0 {
			d.Override = &Override{Count: 3, Unit: Minute, Multiplier: 1}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// keysOf returns the keys that a request touches, in order.
func keysOf(set *Set, req *Request, m *Match) (keys []string) {
	set.Match(req, m)
	for _, c := range m.Charges {
		keys = append(keys, c.Key)
		if c.PenaltyKey != "" {
			keys = append(keys, c.PenaltyKey)
		}
	}
	return keys
}

// TestCoLocation: with the option every key of a domain has the domain for its hash tag, a counter is as much apart
// from the others as without it, and no key of the one kind is one of the other.
func TestCoLocation(t *testing.T) {
	for _, secret := range []string{"", "hush"} {
		t.Run(fmt.Sprintf("secret %q", secret), func(t *testing.T) {
			spread, located := compileWhole(t, secret, false), compileWhole(t, secret, true)
			r := rand.New(rand.NewPCG(5, 6))
			var m Match
			partner, back := map[string]string{}, map[string]string{}
			for range 20_000 / divisor {
				req := wholeRequest(r)
				apart, together := keysOf(spread, req, &m), keysOf(located, req, &m)
				if len(apart) != len(together) {
					t.Fatalf("%+v: %d keys, and %d when co-located", req, len(apart), len(together))
				}
				for i, key := range apart {
					pair(t, partner, key, together[i])
					pair(t, back, together[i], key)
				}
			}
			for key := range back {
				if !strings.HasPrefix(key, "rl1:{shop}~") || strings.Count(key, "{")+strings.Count(key, "}") != 2 {
					t.Errorf("the tag of %q is not the domain alone", key)
				}
				if partner[key] != "" {
					t.Errorf("%q is a key with the option and without it", key)
				}
			}
			if len(back) < 100 {
				t.Errorf("only %d keys were seen", len(back))
			}
		})
	}
}

// pair notes that two keys are the same counter's, and fails where one of them is another's already.
func pair(t *testing.T, partners map[string]string, key, partner string) {
	t.Helper()
	if before, seen := partners[key]; seen && before != partner {
		t.Fatalf("%q stands for both %q and %q", key, before, partner)
	}
	partners[key] = partner
}
