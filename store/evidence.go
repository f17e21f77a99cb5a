package store

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

const (
	connectWithin = 100 * time.Millisecond // how long calls may go without a connection before that is a failure
	settleWithin  = 500 * time.Millisecond // how long a server that succeeded another one may be late
)

// excuses tells whether a call that was late says nothing yet.
func (n *node) excuses(err error, now time.Time) bool {
	if now.Sub(n.since) < settleWithin {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) && n.starving.lasts(now) < connectWithin
}

// spell is a time in which something went on.
type spell struct{ since atomic.Int64 } // unix ns; 0: it does not

// lasts notes that it goes on, and returns for how long it has.
func (s *spell) lasts(now time.Time) time.Duration {
	if s.since.CompareAndSwap(0, now.UnixNano()) {
		return 0
	}
	return now.Sub(time.Unix(0, s.since.Load()))
}

// end notes that it does not.
func (s *spell) end() {
	if s.since.Load() != 0 {
		s.since.Store(0)
	}
}

// evidence is what a call tells the breaker about the server: why it brought no decision, or nothing if it did.
//
// A client must not be able to open the breaker for all. One that hung up says nothing, though its call went on; nor does a
// wait that the client's own deadline made short: less than half of the budget, or of the default budget if that is less.
// What an operator got wrong (a password, a right, a foreign value under a key) is an answer: the server is well, other keys may
// work, and OnError has told of it.
//
// A wait that took far longer than it might says that this process got no time, and with it all calls that waited then. Waits in vain
// and lost connections are lapses: a stall, and a server that drops its clients to become a replica, end all calls at one instant.
//
// When a connection was closed on this side, because there is a new master, that says nothing about the new one. All calls then want
// new connections at once, which are made beside them, and the new master has its replicas to serve: that some calls wait in vain says
// nothing yet.
func (r *Redis) evidence(ctx context.Context, n *node, budget, took time.Duration, why string, err error) breaker.Result {
	if errors.Is(ctx.Err(), context.Canceled) {
		return breaker.Neutral
	}
	switch why {
	case "":
		n.starving.end()
		return breaker.Success
	case ReasonTimeout, ReasonPool:
		return unless(budget < min(r.budget, defaultBudget)/2 || took > budget*3/2 || n.excuses(err, time.Now()), breaker.Lapse)
	case ReasonClosed:
		return unless(errors.Is(err, net.ErrClosed), breaker.Lapse)
	case ReasonCluster:
		// A key that moved is no failure of this server, nor is a slot that nobody serves: others may be served here.
		return unless(!redis.HasErrorPrefix(err, "CLUSTERDOWN The cluster is down"), breaker.Failure)
	case ReasonError:
		var reply redis.Error
		return unless(errors.As(err, &reply), breaker.Failure)
	}
	return said[why]
}

// said is what the other reasons say by themselves; those that are missing say nothing.
var said = map[string]breaker.Result{
	ReasonNoAuth: breaker.Success, ReasonNoPerm: breaker.Success, ReasonWrong: breaker.Success, ReasonSlot: breaker.Success, ReasonScript: breaker.Success,
	ReasonDial: breaker.Failure, ReasonLoading: breaker.Failure, ReasonReadonly: breaker.Failure, ReasonClients: breaker.Failure,
	ReasonOOM: breaker.Failure, ReasonMisconf: breaker.Failure, ReasonBusy: breaker.Failure,
}

// unless is the result, or nothing where the call says nothing about the server.
func unless(neutral bool, result breaker.Result) breaker.Result {
	if neutral {
		return breaker.Neutral
	}
	return result
}
