package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

// evidence is what a call tells the breaker about the server: why it brought no decision, or nothing if it did.
//
// A client must not be able to open the breaker for all. One that hung up says nothing, though its call went on; nor does a
// wait that the client's own deadline made short: less than half of the budget, or of the default budget if that is less.
// What an operator got wrong (a password, a right, a foreign value under a key) says nothing either: the server is well,
// other keys may work, and OnError has told of it.
func (r *Redis) evidence(ctx context.Context, budget time.Duration, why string, err error) breaker.Result {
	if errors.Is(ctx.Err(), context.Canceled) {
		return breaker.Neutral
	}
	switch why {
	case "":
		return breaker.Success
	case ReasonTimeout, ReasonPool:
		if budget < min(r.budget, defaultBudget)/2 {
			return breaker.Neutral
		}
		return breaker.Failure
	case ReasonCluster:
		// A key that moved is no failure of this server.
		if redis.HasErrorPrefix(err, "CLUSTERDOWN") {
			return breaker.Failure
		}
	case ReasonError:
		var reply redis.Error
		if !errors.As(err, &reply) {
			return breaker.Failure
		}
	case ReasonDial, ReasonClosed, ReasonLoading, ReasonReadonly, ReasonClients, ReasonOOM, ReasonMisconf, ReasonBusy:
		return breaker.Failure
	}
	return breaker.Neutral
}
