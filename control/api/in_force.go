package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/leader"
	"github.com/spillway-mesh/spillway/httpapi"
)

// The header of an answer of a change: whether Redis has it, and, if not, what has to come first.
const (
	inForce     = "spillway-in-force"
	inForceOnce = "spillway-in-force-once"
)

const (
	forceWithin = 5 * time.Second       // how long an answer waits until Redis has the change
	forceLook   = 5 * time.Millisecond  // the first pause between two looks; each is twice as long as the one before
	forceDoubt  = 50 * time.Millisecond // the pause from which on Redis is asked whether it is there at all
)

// around runs a change, waits a moment until the leading control, which may be another one, has put it into Redis, and
// answers whether it has.
func (a *API) around(ctx context.Context, answer http.Header, change func(context.Context) error) error {
	watched, made := database.Watch(ctx)
	err := change(watched)
	if err != nil || !made.Made() {
		return err
	}
	is := a.awaitForce(ctx, made)
	answer.Set(inForce, strconv.FormatBool(is))
	if !is {
		answer.Set(inForceOnce, a.forcedOnce(ctx))
	}
	return nil
}

// awaitForce waits until a change is in Redis, for a moment at most, and not while Redis is away.
func (a *API) awaitForce(ctx context.Context, made *database.Change) bool {
	wait, cancel := context.WithTimeout(ctx, forceWithin)
	defer cancel()
	for pause := forceLook; wait.Err() == nil; pause *= 2 {
		is, err := a.Database.InRedis(wait, made)
		if err == nil && is {
			return true
		}
		if pause > forceDoubt && a.Publisher.Away(ctx) != nil {
			return false
		}
		leader.Pause(wait, pause)
	}
	return false
}

// forcedOnce is what has to come before a change is in force. Of the leader's problem a caller who is limited to some
// domains learns nothing: it may name another one.
func (a *API) forcedOnce(ctx context.Context) string {
	away, problem := a.Publisher.Away(ctx), a.Leader.Status().Problems["feed"]
	switch {
	case away != nil:
		return fmt.Sprintf("the control plane has Redis back (%v)", away)
	case problem != "" && httpapi.CallerOf(ctx).Domains == nil:
		return "the leading control can write to Redis (" + problem + ")"
	}
	return "the leading control has put it into Redis"
}
