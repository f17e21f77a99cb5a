package live

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// refusal is a verdict that refuses by a rule, on the counter of that key.
func refusal(key string) *engine.Verdict {
	effect := &descriptors.Effect{Rule: "tree", Name: "per-user", Scope: "user"}
	v := &engine.Verdict{Refused: true, Refusing: effect, RetryAfter: time.Minute}
	v.Outcome, v.HTTPStatus, v.Effect = engine.Refused, 429, effect
	v.Match.Charges = []limit.Charge{{Key: key, Cost: 2, Limit: limit.Limit{Count: 5, Window: time.Hour}}}
	v.Match.Terms = []descriptors.Term{{Effect: effect}}
	v.Decisions = []limit.Decision{{Outcome: limit.Refused, Remaining: 1, ResetAfter: time.Hour}}
	return v
}

// recentRig keeps decisions on a clock that stands.
type recentRig struct {
	*Recent
	clock time.Time
}

func newRecentRig(decisions int) *recentRig {
	rig := &recentRig{clock: time.Unix(1_800_000_000, 0)}
	rig.Recent = NewRecent(decisions, "host-a", func() time.Time { return rig.clock })
	return rig
}

// refuse observes a refusal, and returns its id.
func (r *recentRig) refuse(key string, headers ...identity.Header) string {
	v := refusal(key)
	r.Observe(context.Background(), &descriptors.Request{Domain: "shop", Door: "ext_authz",
		Subject:  &descriptors.Subject{Method: "GET", Path: "/x?secret=1"},
		Evidence: &identity.Evidence{Headers: headers}}, v)
	return v.ID.String()
}

// TestADecisionIsFoundByItsID, and by the id of its request, with all that explains it.
func TestADecisionIsFoundByItsID(t *testing.T) {
	rig := newRecentRig(100)
	first := rig.refuse("a", identity.Header{Name: "x-request-id", Value: "r-1"})
	other := rig.refuse("b")
	for _, id := range []string{first, strings.ToUpper(first), "r-1"} {
		d, found := rig.Find(id)
		if !found || d.ID != first || d.Name != "per-user" || d.Left != 1 || d.Count != 5 || d.Cost != 2 ||
			d.RetryAfter != 60 || d.Status != 429 || d.Path != "/x" || d.Sidecar != "host-a" || !d.At.Equal(rig.clock) {
			t.Errorf("%s: %v, %+v", id, found, d)
		}
	}
	if first == other || len(first) != 16 {
		t.Errorf("the ids are %q and %q", first, other)
	}
	for _, id := range []string{"", "0", "0000000000000000", "x", first[1:]} {
		if d, found := rig.Find(id); found {
			t.Errorf("%q is found: %+v", id, d)
		}
	}
}

// TestWhatWasAdmittedHasNoID, unless it was decided without the store.
func TestWhatWasAdmittedHasNoID(t *testing.T) {
	rig, v := newRecentRig(100), new(engine.Verdict)
	rig.Observe(context.Background(), &descriptors.Request{}, v)
	if v.ID != 0 {
		t.Errorf("an admitted request has the id %v", v.ID)
	}
	v.Degraded = "dial"
	rig.Observe(context.Background(), &descriptors.Request{}, v)
	if d, found := rig.Find(v.ID.String()); !found || d.Degraded != "dial" || d.Left != -1 {
		t.Errorf("a degraded one: %v, %+v", found, d)
	}
}

// apart returns names of counters that share no cell.
func (r *recentRig) apart(count int) (names []string) {
	taken := map[uint64]bool{}
	for i := 0; len(names) < count; i++ {
		name := fmt.Sprint("name ", i)
		cell := maphash.String(r.seed, name) % uint64(len(r.cells))
		if !taken[cell] {
			taken[cell], names = true, append(names, name)
		}
	}
	return names
}

// TestAFloodHidesNoOther: one counter gets few ids in a second, and all together so many that they stay for minutes.
func TestAFloodHidesNoOther(t *testing.T) {
	rig := newRecentRig(800)
	names := rig.apart(3)
	first := rig.refuse(names[0])
	for range 1000 {
		rig.refuse(names[1])
	}
	if got := rig.Stats(); got.Kept != 1+cellMost || got.Dropped != 1000-cellMost {
		t.Errorf("of a loud counter: %+v", got)
	}
	if rig.refuse(names[2]) == "" {
		t.Error("another counter gets no id beside it")
	}
	for i := range 60 * int(recentFor/time.Second) {
		rig.clock = rig.clock.Add(time.Second / 60)
		rig.refuse(fmt.Sprint("counter ", i))
	}
	if _, found := rig.Find(first); !found {
		t.Errorf("what was kept before a flood from many is gone: %+v", rig.Stats())
	}
}

// TestMemoryIsBounded: long texts push out older decisions.
func TestMemoryIsBounded(t *testing.T) {
	rig := newRecentRig(16)
	last := ""
	for i := range 1000 {
		rig.clock = rig.clock.Add(time.Minute)
		last = rig.refuse(fmt.Sprint(i, strings.Repeat("k", 4<<10)))
	}
	if rig.bytes > rig.most || rig.bytes < rig.most/2 || len(rig.kept) > 16 {
		t.Errorf("%d decisions of %d bytes, at most %d", len(rig.kept), rig.bytes, rig.most)
	}
	if _, found := rig.Find(last); !found {
		t.Error("the newest one is gone")
	}
}

func BenchmarkAFloodOfRefusals(b *testing.B) {
	r := NewRecent(8192, "host", time.Now)
	v, req := refusal("rl1:{shop|alice}:user:each:1:tb"), &descriptors.Request{Domain: "shop", Door: "rls"}
	b.ReportAllocs()
	for b.Loop() {
		v.ID = 0
		r.Observe(context.Background(), req, v)
	}
}
