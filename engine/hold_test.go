package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

// TestHoldTakesThePlaceOfWaiting: on a virtual clock a throttled answer comes at once, with the wait in its verdict.
func TestHoldTakesThePlaceOfWaiting(t *testing.T) {
	now := time.Unix(1, 0)
	clock := func() time.Time { return now }
	var held []time.Duration
	e := engine.New(engine.Config{
		Store: memory.New(memory.Config{Now: clock}), Now: clock, Hold: func(wait time.Duration) { held = append(held, wait) },
	})
	defer e.Close()
	set, problems := descriptors.Compile([]descriptors.Domain{{Name: "shop", Rules: []descriptors.Rule{{
		Name: "slow", HasScope: true, Action: descriptors.Throttle, MaxDelay: time.Minute,
		Limits: []descriptors.Limit{{Limit: limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Window: time.Second, Burst: 1}}},
	}}}}, descriptors.Options{Now: clock})
	if set == nil {
		t.Fatal(problems)
	}
	e.Use(set)
	req := &descriptors.Request{Domain: "shop", Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: "path", Value: "/"}}}}}
	var v engine.Verdict
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
		e.Decide(context.Background(), req, &v)
		if v.Refused || v.Waited != want {
			t.Errorf("request %d waits %v, refused %v, want %v", i+1, v.Waited, v.Refused, want)
		}
	}
	if len(held) != 2 || held[1] != 2*time.Second {
		t.Errorf("held %v, want 1s and 2s", held)
	}
}
