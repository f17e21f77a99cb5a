package redis

import (
	"testing"
	"time"
)

// paced is a batcher with requests that wait, none of which were slow so far.
func paced(waiting int) *batcher {
	b := &batcher{server: &Server{client: &Client{cfg: Config{InFlight: 2, Queue: 8192}}}, pace: 8192}
	b.queue = make([]*Pending, waiting)
	return b
}

// answered is a batch of one request that found others ahead of it, had a time and took a part of it.
func answered(now time.Time, ahead int, given, took time.Duration) []*Pending {
	since := now.Add(-took)
	return []*Pending{{group: 1, ahead: ahead, since: since, Due: since.Add(given)}}
}

// refuses reports whether one more request with a time would be refused.
func (b *batcher) refuses(now time.Time, given time.Duration) bool {
	return b.overloadedLocked(now, []*Pending{{Due: now.Add(given)}})
}

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	now := time.Now()
	for _, row := range []struct {
		name        string
		ahead       int
		given, took time.Duration
		refused     bool // of 300 that wait, one with 100 ms
	}{
		{"answered soon", 300, 100 * ms, 50 * ms, false},
		{"slow, with few ahead: the way is long, or the server stood still", 127, 100 * ms, 99 * ms, false},
		{"slow, at a pace that is enough for 300 in 75 ms", 450, 100 * ms, 100 * ms, false},
		{"slow, at a pace that is not", 390, 100 * ms, 100 * ms, true},
		{"late", 200, 16 * ms, 250 * ms, true},
		{"that had no time at all", 390, -250 * ms, 0, false},
	} {
		b := paced(300)
		b.learn(answered(now, row.ahead, row.given, row.took), now)
		if got := b.refuses(now, 100*ms); got != row.refused {
			t.Errorf("%s: refused %v, with a pace of %d", row.name, got, b.pace)
		}
	}
}

func TestThePaceGrowsAgain(t *testing.T) {
	b, now := paced(300), time.Now()
	b.learn(answered(now, 200, time.Second, time.Second), now)
	if b.pace != 20 {
		t.Fatalf("200 a second are a pace of %d, want 20", b.pace)
	}
	batches := 0
	for b.refuses(now, time.Second) {
		b.learn(answered(now, 200, time.Second, time.Millisecond), now)
		batches++
	}
	if b.pace != 20+batches || batches > 30 { // 300 in 750 ms
		t.Errorf("after %d batches that were answered in time the pace is %d", batches, b.pace)
	}
	for range 2 * b.server.client.cfg.Queue {
		b.learn(answered(now, 200, time.Second, time.Millisecond), now)
	}
	if b.pace != b.server.client.cfg.Queue {
		t.Errorf("the pace grows to %d", b.pace)
	}
}
