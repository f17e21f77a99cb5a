package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

// paths is a domain whose tree has a limit for each path.
func paths(chargeDenied bool) descriptors.Domain {
	l := descriptors.Limit{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 1, Window: time.Hour}, Unit: descriptors.Hour, Multiplier: 1}
	return descriptors.Domain{Name: "d", ChargeDenied: chargeDenied, Tree: []descriptors.Node{{Key: "path", Limits: []descriptors.Limit{l}}}}
}

func manyPaths(n int) *descriptors.Request {
	req := &descriptors.Request{Domain: "d"}
	for i := range n {
		req.Descriptors = append(req.Descriptors, descriptors.Descriptor{Entries: []descriptors.Entry{{Key: "path", Value: fmt.Sprint(i)}}})
	}
	return req
}

func TestTooManyChargesTogetherAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		chargeDenied bool
		descriptors  int
		excess       string
	}{
		"128, all or none": {false, limit.MaxTogether, ""},
		"129, all or none": {false, limit.MaxTogether + 1, "charges"},
		"1000, each alone": {true, 1000, ""},
	} {
		inFleet(t, 1, paths(c.chargeDenied), func(t *testing.T, f *fleet) {
			v := f.send(0, manyPaths(c.descriptors))
			if v.Excess != c.excess || v.Refused != (c.excess != "") {
				t.Errorf("%s: refused %v for %q, want %q", name, v.Refused, v.Excess, c.excess)
			}
			if v = f.send(0, manyPaths(1)); v.Refused != (c.excess == "") {
				t.Errorf("%s: the first path is spent: %v, want that of an admitted request only", name, v.Refused)
			}
		})
	}
}

func TestAnExcessiveRequestIsRefusedUnread(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		var seen []string
		e := engine.New(engine.Config{Store: memory.New(memory.Config{}), Shadow: shadow, OnVerdict: func(_ *descriptors.Request, v *engine.Verdict) {
			seen = append(seen, v.Excess)
		}})
		var v engine.Verdict
		e.Decide(t.Context(), &descriptors.Request{Excess: "bytes"}, &v)
		if v.Refused == shadow || v.Shadowed != shadow || v.RetryAfter != time.Second || len(seen) != 1 || seen[0] != "bytes" {
			t.Errorf("shadow %v: %+v, seen %q", shadow, v, seen)
		}
		e.Decide(t.Context(), &descriptors.Request{Domain: "d"}, &v)
		if v.Refused || v.Excess != "" {
			t.Errorf("the next request has the excess of the one before: %+v", v)
		}
	}
}

func TestALongPathThatServersReadDifferentlyIsRefused(t *testing.T) {
	rule := descriptors.Rule{Name: "all", HasScope: true, Priority: 100, Limits: []descriptors.Limit{{Limit: limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Window: time.Hour, Burst: 1}}}}
	inFleet(t, 1, descriptors.Domain{Name: "d", Rules: []descriptors.Rule{rule}}, func(t *testing.T, f *fleet) {
		send := func(path string) *engine.Verdict {
			return f.send(0, &descriptors.Request{Domain: "d", Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: "path", Value: path}}}}})
		}
		if v := send(strings.Repeat(`/a%2fb%5cc\d;e%40/../x`, 500)); !v.Refused || v.Excess != "path" ||
			len(v.Statuses) != 1 || !v.Statuses[0].Over {
			t.Errorf("refused %v for %q with the statuses %v, want for its path, and one over the limit", v.Refused,
				v.Excess, v.Statuses)
		}
		if v := send("/a/" + strings.Repeat("b", 5000)); v.Refused {
			t.Errorf("a long path with one reading is refused, or the one before was charged")
		}
	})
}

// TestAMalformedRequestIsOneOfItsDomain: that it is refused before rules are looked at does not mean that there are
// none.
func TestAMalformedRequestIsOneOfItsDomain(t *testing.T) {
	inFleet(t, 1, descriptors.Domain{Name: "d", Rules: []descriptors.Rule{bucket("t", descriptors.ScopeTenant,
		100)}}, func(t *testing.T, f *fleet) {
		req := &descriptors.Request{Domain: "d", Evidence: &identity.Evidence{},
			Subject: &descriptors.Subject{Path: "/a/..;/b", Method: "GET"}}
		if v := f.send(0, req); v.Malformed == nil || !v.Match.Known {
			t.Errorf("malformed %v, of a known domain %v, want both", v.Malformed, v.Match.Known)
		}
	})
}
