package fleet

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
)

const (
	aliveParts    = 3                      // a server has to be silent for so many times its bound on every connection before that is a failure
	connectWithin = 100 * time.Millisecond // how long calls may go without a connection before that is a failure
	settleWithin  = 500 * time.Millisecond // how long a server that succeeded another one may be late
	hurried       = 5 * time.Millisecond   // a wait that its caller made shorter than this shows nothing
)

// Settling reports whether the server has just succeeded another one. What that one did last may be lost.
func (n *Node) Settling() bool {
	since := time.Duration(n.since.Load())
	return since > 0 && processTime()-since < settleWithin
}

// settle notes that the server has just succeeded another one.
func (n *Node) settle() { n.since.Store(max(int64(processTime()), 1)) }

// settle notes which servers have slots now and had none in the table before: each has succeeded another one. Without a table before, all are
// as they were.
func (t *table) settle(old *table) {
	if old == nil {
		return
	}
	before := old.members()
	for n := range t.members() {
		if !before[n] {
			n.settle()
		}
	}
}

// members are the servers that have slots.
func (t *table) members() map[*Node]bool {
	all := map[*Node]bool{}
	var last *Node
	for _, n := range t {
		if n != last && n != nil {
			all[n] = true
		}
		last = n
	}
	return all
}

// spell is a time in which something went on.
type spell struct{ since atomic.Int64 } // process time; 0: it does not go on

// lasts notes that it goes on, and returns for how long it has. It reads the start once: it may end and begin at any moment.
func (s *spell) lasts() time.Duration {
	now, since := int64(processTime()), s.since.Load()
	if since == 0 {
		s.since.CompareAndSwap(0, max(now, 1))
		return 0
	}
	return time.Duration(max(now-since, 0))
}

// end notes that it does not.
func (s *spell) end() {
	if s.since.Load() != 0 {
		s.since.Store(0)
	}
}

// alive reports whether the server was heard, and has not been silent on every connection for long: then a connection that is silent or
// lost shows nothing about it.
func (n *Node) alive() bool {
	silentFrom := time.Duration(n.silentFrom.Load())
	return n.heard.Load() != 0 && (silentFrom == 0 || processTime()-silentFrom < n.bears(aliveParts*n.silence()))
}

// speaks notes that a call got no reply, and reports whether the server is alive and that has gone on for a short time only: one that answers pings, and no call, is
// of no use.
func (n *Node) speaks() bool { return n.mute.lasts() < n.bears(connectWithin) && n.alive() }

// hear notes an error that is a reply.
func (n *Node) hear(err error) {
	if isReply(err) {
		n.mute.end()
	}
}

// isReply reports whether an error is what the server replied.
func isReply(err error) bool {
	var reply ReplyError
	return errors.As(err, &reply)
}

// bears is for how long a sign of failure has to last. After the breaker has closed it is twice as long for a while: on a bad network all connections may be
// silent or lost at once, and it would open and close all the time.
func (n *Node) bears(d time.Duration) time.Duration {
	if n.guard.Load().Flaps() {
		return 2 * d
	}
	return d
}

// hurries reports whether a wait is so short that its end shows nothing about the server.
func (n *Node) hurries(allow time.Duration) bool { return allow < min(n.bounds.Silence/2, hurried) }

// late takes in that a call with this patience ran out of it. One that hurries, or gives hardly more time than the way to the server and
// back takes, shows nothing about what the server can do.
func (n *Node) late(allowed time.Duration) {
	if !n.hurries(allowed) && allowed >= 2*time.Duration(n.usual.least.Load()) {
		n.load.late(allowed)
	}
}

// evidence is what a call shows the breaker about the server.
//
// A client must not be able to open the breaker for all. One that hung up shows nothing, though its call went on; nor does a
// wait that the client's own deadline made short, or that came to its end while this process did not run. What an operator got wrong (a password, a right, a foreign value under a key) is
// an answer: the server is well, and other keys may work.
//
// Silence and lost connections show something only when the server is silent on all connections, or answers no call for a while: one may be lost alone, and a
// server that drops its clients to become a replica ends all calls at one instant. Calls that wait for a connection show nothing at
// first: connections are made beside them. A call that was sent before the bound on calls under way was known to be too high
// shows nothing by being late. What another server of a cluster did, to which this one sent the call, shows nothing about this one.
func (n *Node) evidence(ctx context.Context, c *Call, allow time.Duration, err error) breaker.Result {
	if unrelated(ctx, c, err) {
		return breaker.Neutral
	}
	if err == nil {
		n.lacking.end()
		n.mute.end()
		return breaker.Success
	}
	short := n.hurries(allow) || n.Settling()
	switch {
	case errors.Is(err, errSilent):
		return unless(short || n.speaks(), breaker.Failure)
	case errors.Is(err, errPatience):
		return unless(short || n.load.excuses(c.began), breaker.Late)
	case errors.Is(err, errNoLink):
		return unless(short || n.lacking.lasts() < n.bears(connectWithin), breaker.Failure)
	}
	n.hear(err)
	return n.shown(err)
}

// unrelated reports whether a call ended as it did because of its client, this process, or another server that it was sent on to.
func unrelated(ctx context.Context, c *Call, err error) bool {
	return errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, errDeadline) || err != nil && c.moved
}

// shown is what the reason of an error shows by itself.
func (n *Node) shown(err error) breaker.Result {
	why := Reason(err)
	var early *unsentError
	switch why {
	case ReasonTimeout:
		if errors.As(err, &early) {
			// It answers no greeting. That it was heard before excuses it for a while only.
			return unless(n.Settling() || n.alive() && n.lacksBriefly(), breaker.Failure)
		}
		return unless(n.Settling() || n.alive(), breaker.Failure)
	case ReasonClosed:
		if errors.As(err, &early) {
			// It ends connections before it can be asked. On a bad network that happens to some of them.
			return unless(n.lacksBriefly(), breaker.Failure)
		}
		return unless(n.speaks(), breaker.Failure)
	case ReasonCluster:
		// A key that moved is no failure of this server, nor is a slot that no server has: others may be served here.
		return unless(!IsReply(err, "CLUSTERDOWN The cluster is down"), breaker.Failure)
	case ReasonError:
		return unless(isReply(err), breaker.Failure)
	}
	return said[why]
}

// lacksBriefly notes that a call found no connection, and reports whether that has gone on for a short time only.
func (n *Node) lacksBriefly() bool { return n.lacking.lasts() < n.bears(aliveParts*n.silence()) }

// said is what the other reasons show; those that are missing show nothing.
var said = map[string]breaker.Result{
	ReasonNoAuth: breaker.Success, ReasonNoPerm: breaker.Success, ReasonWrong: breaker.Success, ReasonSlot: breaker.Success, ReasonScript: breaker.Success,
	ReasonDial: breaker.Failure, ReasonLoading: breaker.Failure, ReasonReadonly: breaker.Failure, ReasonClients: breaker.Failure,
	ReasonOOM: breaker.Failure, ReasonMisconf: breaker.Failure, ReasonBusy: breaker.Failure,
}

// unless is the result, or nothing where the call shows nothing about the server.
func unless(neutral bool, result breaker.Result) breaker.Result {
	if neutral {
		return breaker.Neutral
	}
	return result
}
