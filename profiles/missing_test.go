package profiles

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// questions lets a store note what the control plane is asked about.
func questions(b *Store) <-chan Identity {
	asked := make(chan Identity, 2*maxMissing)
	b.cfg.Missing = func(_ context.Context, ids []Identity) error {
		for _, id := range ids {
			asked <- id
		}
		return nil
	}
	return asked
}

// awaitFilling waits until a store knows that profiles are put back, or that they are not.
func awaitFilling(t *testing.T, b *Store, want bool) {
	t.Helper()
	servers.Await(t, fmt.Sprintf("filling = %v", want), func() error {
		if b.filling() != want {
			return errors.New("it is not known yet")
		}
		return nil
	})
}

// TestWhatIsNotBackYet empties Redis and has profiles put back: what is known holds, what is not known is asked for,
// and what changes meanwhile is seen at once.
func TestWhatIsNotBackYet(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	control, sidecar := all.open(t, 0), all.open(t, 0)
	asked := questions(sidecar)
	for name, tier := range map[string]string{"alice": "gold", "bob": "silver", "carol": "gold"} {
		give(t, control, name, tier)
	}
	expectTier(t, sidecar, "alice", "gold")
	expectTier(t, sidecar, "carol", "gold")
	all.redis.Do(t, "FLUSHALL")
	must.Do(t, control.BeginFilling(t.Context(), []Identity{{Domain: "shop", Kind: User}}))
	sidecar.Outdate()
	fresh := all.open(t, 0)
	awaitFilling(t, fresh, true)
	expectTier(t, fresh, "bob", "none")

	expectTier(t, sidecar, "alice", "gold")
	if got := <-asked; got != user("alice") {
		t.Errorf("%v is asked about, want alice", got)
	}
	expectTier(t, sidecar, "bob", "none")
	if got := <-asked; got != user("bob") {
		t.Errorf("%v is asked about, want bob", got)
	}
	expectTier(t, sidecar, "bob", "none")
	if len(asked)+len(sidecar.missing) > 0 {
		t.Error("bob is asked about again at once")
	}
	all.skip.Store(int64(failedLife))
	expectTier(t, sidecar, "bob", "none")
	if got := <-asked; got != user("bob") {
		t.Errorf("a second later %v is asked about, want bob again", got)
	}

	mend(t, control, []Swap{{Identity: user("bob"), Profile: &Profile{Tier: "silver"}}})
	must.Get(control.Swap(t.Context(), []Swap{{Identity: user("carol")}}))(t)
	expectTier(t, sidecar, "bob", "silver")
	expectTier(t, sidecar, "carol", "none") // it was deleted meanwhile
	must.Do(t, control.EndFilling(t.Context()))
	awaitFilling(t, sidecar, false)
	awaitFilling(t, control, false)
	for len(asked) > 0 {
		<-asked
	}
	expectTier(t, sidecar, "alice", "none")
	expectTier(t, sidecar, "dave", "none")
	if len(asked)+len(sidecar.missing) > 0 {
		t.Error("the control plane is asked about profiles although all are back")
	}
}

// TestFillingEndsByItself has a control that began to put profiles back more than an hour ago, and never ended it.
func TestFillingEndsByItself(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	b := all.open(t, 0)
	must.Do(t, b.BeginFilling(t.Context(), nil))
	b.Outdate()
	awaitFilling(t, b, true)
	all.skip.Store(int64(indexSlack + time.Minute))
	b.Outdate()
	awaitFilling(t, b, false)
}

// TestQuestionsAreBounded lets more be missing than can be asked about.
func TestQuestionsAreBounded(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	b := all.open(t, 0)
	held, entered := make(chan struct{}), make(chan struct{}, 2*maxMissing)
	b.cfg.Missing = func(context.Context, []Identity) error {
		entered <- struct{}{}
		<-held
		return errors.New("away")
	}
	must.Do(t, b.BeginFilling(t.Context(), []Identity{{Domain: "shop", Kind: User}}))
	awaitFilling(t, b, true)
	b.Ask(t.Context(), []Identity{user("first")})
	<-entered
	ids := make([]Identity, 0, maxMissing+100)
	for n := range maxMissing + 100 {
		ids = append(ids, user(fmt.Sprint("user-", n)))
	}
	b.Ask(t.Context(), ids)
	if got := b.Stats().Unasked; got != 100 {
		t.Errorf("%d are not asked about for want of room, want 100", got)
	}
	close(held)
	servers.Await(t, "the end of the questions", func() error {
		if got := b.Stats().Unasked; got != maxMissing+101 {
			return fmt.Errorf("%d are not asked about, want all %d", got, maxMissing+101)
		}
		return nil
	})
}
