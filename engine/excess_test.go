package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

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
		b := newBench(t, nil, descriptors.Domain{
			Name: "d", ChargeDenied: c.chargeDenied, Tree: []descriptors.Node{leaf("path", "", 1)},
		})
		var lists [][]string
		for i := range c.descriptors {
			lists = append(lists, []string{"path", fmt.Sprint(i)})
		}
		v := b.ask(lists...)
		if v.Excess != c.excess || v.Refused != (c.excess != "") {
			t.Errorf("%s: refused %v for %q, want %q", name, v.Refused, v.Excess, c.excess)
		}
		if v = b.ask(lists[0]); v.Refused != (c.excess == "") {
			t.Errorf("%s: the first path is spent: %v, want that of an admitted request only", name, v.Refused)
		}
	}
}

func TestAnExcessiveRequestIsRefusedUnread(t *testing.T) {
	b := newBench(t, nil)
	v := b.decide(&descriptors.Request{Excess: "bytes"})
	if !v.Refused || v.RetryAfter != time.Second || v.Excess != "bytes" {
		t.Errorf("refused %v for %q, retry after %v", v.Refused, v.Excess, v.RetryAfter)
	}
	b.Decide(t.Context(), &descriptors.Request{Domain: "d"}, v)
	if v.Refused || v.Excess != "" {
		t.Errorf("the next request has the excess of the one before: %+v", v)
	}
}

func TestALongPathThatServersReadDifferentlyIsRefused(t *testing.T) {
	b := newBench(t, nil, ruled(bucket("all", descriptors.ScopeGlobal, 1)))
	v := b.ask([]string{"path", strings.Repeat(`/a%2fb%5cc\d;e%40/../x`, 500)})
	if !v.Refused || v.Excess != "path" || !v.Statuses[0].Over {
		t.Errorf("refused %v for %q with the statuses %v, want over the limit for its path", v.Refused, v.Excess,
			v.Statuses)
	}
	want(t, "a long path with one reading", b.ask([]string{"path", "/a/" + strings.Repeat("b", 5000)}), false)
}
