package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

// The reasons why a call brought no reply, or one that is an error. They are labels of metrics, so the list is short
// and never holds what a server wrote. "Nothing ran" means that the server did not execute the call; else that is not
// known.
const (
	ReasonDeadline = "deadline"  // the caller left no time for a call; nothing ran
	ReasonOverload = "overload"  // more requests wait than can be answered in time; nothing ran
	ReasonBreaker  = "breaker"   // the server failed a moment ago and is left alone; nothing ran
	ReasonTimeout  = "timeout"   // the reply did not come in time, or there was no connection to ask on
	ReasonDial     = "dial"      // the server cannot be reached; nothing ran
	ReasonClosed   = "closed"    // the connection ended before the reply
	ReasonShutdown = "shutdown"  // this client was closed; nothing ran
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
	ReasonScript   = "script"    // the script failed: a defect of Spillway or a server that is too old
	ReasonReply    = "reply"     // the reply could not be read: not the script that was asked
	ReasonError    = "error"     // anything else
)

// replies maps how an error reply begins to a reason. Only the beginning counts: errors from inside a script carry
// its name and line at the end.
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
	{forbidden, ReasonNoPerm},
	{forbiddenLater, ReasonNoPerm},
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

// How a reply begins when the user may run the script, but not a command in it: up to Redis 7, and later and of
// Valkey.
const (
	forbidden      = "ERR The user executing the script can't"
	forbiddenLater = "ERR ACL failure in script"
)

// Why a call brought no reply, besides what connections and servers report.
var (
	errOverload = errors.New("more requests wait than can be answered in time")
	errClosed   = errors.New("the connections are closed")
	errLeft     = errors.New("the caller left before the request was sent")
	errReply    = errors.New("the reply must be as many integers as were asked for")
	errPanicked = errors.New("the reply could not be read: a panic, which was reported")
	errClients  = errors.New("the server takes no more connections")
	errFormer   = errors.New("the connection leads to a former master")
	errUnknown  = errors.New("the servers are not known yet")
)

// reasonsOf are the reasons of errors that are no replies.
var reasonsOf = []struct {
	error
	reason string
}{
	{breaker.ErrOpen, ReasonBreaker},
	{errOverload, ReasonOverload},
	{errClosed, ReasonShutdown},
	{goredis.ErrClosed, ReasonShutdown},
	{errLeft, ReasonDeadline},
	{context.Canceled, ReasonDeadline},
	{errReply, ReasonReply},
	{errClients, ReasonClients},
	{errUnknown, ReasonCluster},
	{goredis.ErrPoolTimeout, ReasonTimeout},
	{goredis.ErrPoolExhausted, ReasonTimeout},
	{io.EOF, ReasonClosed},
	{io.ErrUnexpectedEOF, ReasonClosed},
	{net.ErrClosed, ReasonClosed},
	{syscall.ECONNRESET, ReasonClosed},
	{syscall.EPIPE, ReasonClosed},
}

// Reason labels the error of a call; empty for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	var reply goredis.Error
	if errors.As(err, &reply) {
		return replyReason(reply.Error())
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return ReasonDial
	}
	for _, known := range reasonsOf {
		if errors.Is(err, known.error) {
			return known.reason
		}
	}
	if isTimeout(err) {
		return ReasonTimeout
	}
	return ReasonError
}

func replyReason(text string) string {
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

// IsReply reports whether the server replied with an error that begins so.
func IsReply(err error, prefix string) bool {
	if err == nil {
		return false
	}
	var reply goredis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), prefix)
}

// isTimeout is also true for a dial and for a context that took too long.
func isTimeout(err error) bool {
	var slow net.Error
	return errors.As(err, &slow) && slow.Timeout()
}

// MayHaveRun reports whether a call that ended with this error may have run on the server all the same: it was sent,
// and no reply came, or the error is one from inside a script.
func MayHaveRun(err error) bool {
	if err == nil || isUnsent(err) {
		return false
	}
	switch Reason(err) {
	case ReasonBreaker, ReasonOverload, ReasonShutdown, ReasonDeadline:
		return false
	case ReasonScript:
		return !IsReply(err, "NOSCRIPT")
	case ReasonNoPerm:
		return IsReply(err, forbidden) || IsReply(err, forbiddenLater)
	}
	return !IsReply(err, "")
}

// unsentError is why a call was not sent.
type unsentError struct{ error }

// Unwrap is the reason itself.
func (e *unsentError) Unwrap() error { return e.error }

func isUnsent(err error) bool {
	var early *unsentError
	return errors.As(err, &early)
}
