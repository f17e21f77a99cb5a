package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// ring is the addresses of servers, only for places.
type ring []string

func (r ring) home(key string) string {
	var hashes []uint64
	for _, address := range r {
		hashes = append(hashes, hash64(address))
	}
	return r[heaviest(hashes, key)]
}

// TestPlacesOnARingNeverChange: a new release that placed keys elsewhere would forget all counts.
func TestPlacesOnARingNeverChange(t *testing.T) {
	r := ring{"redis-0:6379", "redis-1:6379", "redis-2:6379"}
	for key, want := range map[string]string{
		"rl1:{api|user=alice}:user:per-user:1:token_bucket": "redis-0:6379",
		"rl1:{api|user=bob}:user:per-user:1:token_bucket":   "redis-1:6379",
		"rl1:{api|user=carol}:user:per-user:1:fixed_window": "redis-0:6379",
		"rl1:{api|tenant=acme}:tenant:daily:0:sliding_log":  "redis-1:6379",
		"rl1:{}:global": "redis-1:6379",
		"plain":         "redis-1:6379",
		"":              "redis-2:6379",
	} {
		if got := r.home(key); got != want {
			t.Errorf("%q is on %s, want %s", key, got, want)
		}
	}
}

func TestAKeysPlaceIsThatOfItsTag(t *testing.T) {
	r := ring{"a:1", "b:1", "c:1", "d:1", "e:1"}
	for i := range 1000 {
		one, two := r.home(fmt.Sprintf("x:{tag%d}:y", i)), r.home(fmt.Sprintf("other{tag%d}{no}", i))
		if one != two {
			t.Fatalf("two keys with the tag tag%d are on %s and %s", i, one, two)
		}
	}
}

func TestKeysSpreadEvenlyOverARing(t *testing.T) {
	const keys = 100_000
	for n := 3; n <= 10; n++ {
		var addresses []string
		for i := range n {
			addresses = append(addresses, fmt.Sprintf("10.0.%d.%d:6379", n, i))
		}
		r, counts := ring(addresses), map[string]int{}
		for i := range keys {
			counts[r.home(fmt.Sprintf("rl1:{api|user=%d}:user:per-user:1:token_bucket", i))]++
		}
		for _, a := range addresses {
			if off := float64(counts[a]*n)/keys - 1; off < -0.05 || off > 0.05 {
				t.Errorf("of %d shards %s has %d of %d keys, %.1f %% off", n, a, counts[a], keys, 100*off)
			}
		}
	}
}

func TestAShardThatIsAddedTakesItsPartOnly(t *testing.T) {
	const keys = 50_000
	addresses := []string{"a:6379", "b:6379", "c:6379", "d:6379"}
	before, after := ring(addresses), ring(append(addresses, "e:6379"))
	moved := 0
	for i := range keys {
		key := fmt.Sprintf("rl1:{api|user=%d}:k", i)
		from, to := before.home(key), after.home(key)
		if from == to {
			continue
		}
		moved++
		if to != "e:6379" {
			t.Fatalf("%s moved from %s to %s, which was there before", key, from, to)
		}
	}
	if moved < keys/5*9/10 || moved > keys/5*11/10 {
		t.Errorf("%d of %d keys moved to the fifth shard, want a fifth", moved, keys)
	}
}

func TestTheOrderOfShardsDoesNotMatter(t *testing.T) {
	addresses := []string{"a:6379", "b:6379", "c:6379", "d:6379", "e:6379"}
	r := ring(addresses)
	shuffled := slices.Clone(addresses)
	for range 10 {
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		other := ring(shuffled)
		for i := range 1000 {
			key := fmt.Sprint("key", i)
			if r.home(key) != other.home(key) {
				t.Fatalf("%s is on %s, in the order %v on %s", key, r.home(key), shuffled, other.home(key))
			}
		}
	}
}
