package store

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// The reasons of an Undecided decision. They are labels of metrics, so the list is short and never holds what a server
// wrote. "Nothing ran" means that the reply proves that no charge was made; else nobody knows.
const (
	ReasonDeadline = "deadline"  // the caller left no time for a call; nothing ran
	ReasonOverload = "overload"  // too many calls in flight in this process; nothing ran
	ReasonBreaker  = "breaker"   // the server failed a moment ago and is left alone; nothing ran
	ReasonTimeout  = "timeout"   // no reply within the budget, or no connection to ask on
	ReasonPool     = "pool"      // every connection was busy for too long; nothing ran
	ReasonDial     = "dial"      // the server cannot be reached; nothing ran
	ReasonClosed   = "closed"    // the connection ended before the reply
	ReasonShutdown = "shutdown"  // this store was closed; nothing ran
	ReasonLoading  = "loading"   // the server reads its data, or its replica has no master; nothing ran
	ReasonReadonly = "readonly"  // the server is a read-only replica; nothing ran
	ReasonClients  = "clients"   // the server takes no more connections; nothing ran
	ReasonOOM      = "oom"       // the server is out of memory and may not evict; nothing ran
	ReasonMisconf  = "misconf"   // the server refuses writes because it cannot save; nothing ran
	ReasonNoAuth   = "noauth"    // user or password is missing or wrong; nothing ran
	ReasonNoPerm   = "noperm"    // the user may not run the script, a command in it, or touch the key
	ReasonWrong    = "wrongtype" // a foreign value sits under the key; nothing was charged
	ReasonBusy     = "busy"      // the server is in a script that does not end; nothing ran
	ReasonCluster  = "cluster"   // the server is part of a cluster and does not hold the key; nothing ran
	ReasonSlot     = "crossslot" // the keys of one call lie in several slots of a cluster; nothing ran
	ReasonScript   = "script"    // the script failed: a defect of Spillway or a server too old
	ReasonReply    = "reply"     // the reply could not be read: not the script that was asked
	ReasonError    = "error"     // anything else
)

// replies maps how an error reply begins to a reason. Only the beginning counts: errors from inside a script carry its
// name and line at the end.
var replies = []struct{ prefix, reason string }{
	{"LOADING", ReasonLoading},
	{"MASTERDOWN", ReasonLoading},
	{"READONLY", ReasonReadonly},
	{"NOREPLICAS", ReasonReadonly},
	{"ERR max number of clients", ReasonClients},
	{"OOM", ReasonOOM},
	{"MISCONF", ReasonMisconf},
	{"NOAUTH", ReasonNoAuth},
	{"WRONGPASS", ReasonNoAuth},
	{"ERR invalid password", ReasonNoAuth},
	{"ERR AUTH", ReasonNoAuth},
	{"ERR Protocol error: unauthenticated", ReasonNoAuth}, // too much was asked before the password
	{"NOPERM", ReasonNoPerm},
	{noPermInside, ReasonNoPerm},
	{"WRONGTYPE", ReasonWrong},
	{"BUSY", ReasonBusy},
	{"MOVED", ReasonCluster},
	{"ASK", ReasonCluster},
	{"TRYAGAIN", ReasonCluster},
	{"CLUSTERDOWN", ReasonCluster},
	{"CROSSSLOT", ReasonSlot},
	{"NOSCRIPT", ReasonScript},
	{"ERR Error running script", ReasonScript},
	{"ERR Error compiling script", ReasonScript},
	{"ERR user_script", ReasonScript},
	{"ERR unknown command", ReasonScript},
}

// noPermInside is how a reply begins when the user may run the script, but not a command in it.
const noPermInside = "ERR The user executing the script can't"

// foreignValue is in what the script says about a value of the right type that no limit wrote.
const foreignValue = "holds a value that no limit wrote"

// reason labels the error of a call.
func reason(err error) string {
	var reply redis.Error
	if errors.As(err, &reply) {
		return replyReason(reply.Error())
	}
	var op *net.OpError
	switch {
	case errors.Is(err, redis.ErrClosed):
		return ReasonShutdown
	case errors.Is(err, errClients):
		return ReasonClients
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return ReasonPool
	case errors.As(err, &op) && op.Op == "dial":
		return ReasonDial
	case isTimeout(err):
		return ReasonTimeout
	case isClosed(err):
		return ReasonClosed
	}
	return ReasonError
}

func replyReason(text string) string {
	if strings.Contains(text, foreignValue) {
		return ReasonWrong
	}
	for _, r := range replies {
		if strings.HasPrefix(text, r.prefix) {
			return r.reason
		}
	}
	if strings.Contains(text, "@user_script") || strings.Contains(text, "user_script:") {
		return ReasonScript
	}
	return ReasonError
}

// isTimeout: a deadline that ends a read surfaces as an i/o timeout and not as the context's error.
func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ranMaybe reports whether a call that failed may have run on the server all the same. What was never written has not.
func ranMaybe(why string, err error, written bool) bool {
	switch why {
	case ReasonTimeout, ReasonClosed:
		return written
	case ReasonScript, ReasonReply:
		return true
	case ReasonNoPerm:
		return strings.HasPrefix(err.Error(), noPermInside)
	case ReasonError:
		var reply redis.Error
		return written && !errors.As(err, &reply)
	}
	return false
}
