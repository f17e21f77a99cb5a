package profiles

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestAddLeavesWhatIsThere adds more profiles than one command has. One of them is in Redis already, and stays; one
// ends.
func TestAddLeavesWhatIsThere(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	store := all.open(t, 0)
	const count, there, ends = 2*mostKeys + 3, mostKeys + 1, 7
	swaps, ids := make([]Swap, count), make([]Identity, count)
	for i := range swaps {
		ids[i] = user(fmt.Sprint("user-", i))
		swaps[i] = Swap{Identity: ids[i], Profile: &Profile{Tier: fmt.Sprint("tier-", i)}}
	}
	swaps[ends].Profile = &Profile{Block: &Block{Until: time.Now().Add(time.Hour).UTC()}}
	all.redis.Do(t, "SET", store.cfg.Key(&ids[there]), `{"tier":"operator"}`)
	written, err := store.Add(t.Context(), swaps)
	if err != nil || written != count-1 {
		t.Fatalf("%d of %d profiles are written: %v", written, count, err)
	}
	texts := must.Get(store.Read(t.Context(), ids))(t)
	for i, text := range texts {
		want := fmt.Sprintf(`{"tier":"tier-%d"}`, i)
		switch i {
		case there:
			want = `{"tier":"operator"}`
		case ends:
			want = must.Get(swaps[i].text())(t)
		}
		if text != want {
			t.Errorf("Redis has %s of %s, want %s", text, ids[i].Name, want)
		}
	}
	if left := all.redis.Do(t, "PTTL", store.cfg.Key(&ids[ends])).(int64); left <= 0 {
		t.Errorf("a block that ends in an hour has the time to live %d", left)
	}
}
