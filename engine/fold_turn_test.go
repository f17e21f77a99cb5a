package engine_test

import (
	"testing"

	"github.com/spillway-mesh/spillway/descriptors"
)

// TestEqualDescriptorsCountInTurn: each of them shows what it left, as long as the request is admitted.
func TestEqualDescriptorsCountInTurn(t *testing.T) {
	tree := []descriptors.Node{leaf("a", "", 100), leaf("b", "", 5)}
	for _, many := range []int{2, 3, 40} {
		b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: tree})
		lists := [][]string{{"b", "1"}}
		for range many {
			lists = append(lists, []string{"a", "1"})
		}
		v := b.ask(lists...)
		if got := v.Statuses[0].Remaining; got != 4 {
			t.Errorf("%d equal: the other descriptor shows %d left, want 4", many, got)
		}
		for i := range many {
			if got, want := v.Statuses[i+1].Remaining, int64(99-i); got != want {
				t.Errorf("%d equal: number %d shows %d left, want %d", many, i, got, want)
			}
		}
	}
}

// TestEqualDescriptorsOfARefusedRequest show what each of them left, too: those of a tree stay charged.
func TestEqualDescriptorsOfARefusedRequest(t *testing.T) {
	b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{leaf("a", "", 2)}})
	v := b.ask([]string{"a", "1"}, []string{"a", "1"}, []string{"a", "1"})
	want(t, "three of two", v, true)
	for i, left := range []int64{1, 0, 0} {
		if s := v.Statuses[i]; s.Over != (i == 2) || s.Remaining != left {
			t.Errorf("status %d is %+v, want over %v and %d left", i, s, i == 2, left)
		}
	}
}

// TestEqualPostPaidDescriptors show no tokens while there is a debt.
func TestEqualPostPaidDescriptors(t *testing.T) {
	n := leaf("a", "", 0)
	n.PostPaid, n.Limits = true, bucket("", descriptors.ScopeUser, 1).Limits
	b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{n}})
	v := b.ask([]string{"a", "1"}, []string{"a", "1"})
	want(t, "post-paid", v, false)
	for i, s := range v.Statuses {
		if s.Remaining != 0 {
			t.Errorf("status %d shows %d left, want none", i, s.Remaining)
		}
	}
}
