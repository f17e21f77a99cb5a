package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
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
	ReasonTimeout  = "timeout"   // the reply did not come in time, or all connections were taken
	ReasonDial     = "dial"      // the server cannot be reached; nothing ran
	ReasonClosed   = "closed"    // the connection ended before the reply
	ReasonShutdown = "shutdown"  // this client was closed; nothing ran
	ReasonLoading  = "loading"   // the server reads its data, or its replica lost its master; nothing ran
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

// Why a call brought no reply, besides what connections and servers report.
var (
	errUnsent   = errors.New("it was not sent") // around the reason
	errOverload = errors.New("more requests wait than can be answered in time")
	errClosed   = errors.New("the connections are closed")
	errLeft     = errors.New("the caller left before the request was sent")
	errReply    = errors.New("the reply must be as many integers as were asked for")
	errPanicked = errors.New("the reply could not be read: a panic, which was reported")
	errClients  = errors.New("the server takes no more connections")
	errFormer   = errors.New("the connection leads to a former master")
	errUnknown  = errors.New("the servers are not known yet")
)

// causes are how the reasons are recognised: by how an error reply begins, or by an error of the connection. Of a reply
// only the beginning counts: errors from inside a script carry its name and line at the end.
var causes = []struct {
	reason  string
	replies []string
	errors  []error
}{
	{ReasonBreaker, nil, []error{breaker.ErrOpen}},
	{ReasonOverload, nil, []error{errOverload}},
	{ReasonShutdown, nil, []error{errClosed, goredis.ErrClosed}},
	{ReasonDeadline, nil, []error{errLeft, context.Canceled}},
	{ReasonReply, nil, []error{errReply}},
	{ReasonTimeout, nil, []error{goredis.ErrPoolTimeout, goredis.ErrPoolExhausted}},
	{ReasonClosed, nil, []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}},
	{ReasonClients, []string{"ERR max number of clients"}, []error{errClients}},
	{ReasonCluster, []string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"}, []error{errUnknown}},
	{ReasonLoading, []string{"LOADING", "MASTERDOWN"}, nil},
	{ReasonReadonly, []string{"READONLY", "NOREPLICAS"}, nil},
	{ReasonOOM, []string{"OOM"}, nil},
	{ReasonMisconf, []string{"MISCONF"}, nil},
	{ReasonBusy, []string{"BUSY"}, nil},
	{ReasonNoAuth, []string{"NOAUTH", "WRONGPASS", "ERR invalid password", "ERR AUTH",
		"ERR Protocol error: unauthenticated"}, nil}, // the last one if too much was asked before the password
	{ReasonNoPerm, []string{"NOPERM", "ERR The user executing the script can't", // of a command in it, up to Redis 7,
		"ERR ACL failure in script"}, nil}, // and since then
	{ReasonWrong, []string{"WRONGTYPE"}, nil},
	{ReasonSlot, []string{"CROSSSLOT"}, nil},
	{ReasonScript, []string{"NOSCRIPT", "ERR Error running script", "ERR Error compiling script", "ERR user_script",
		"ERR unknown command"}, nil},
}

// Reason labels the error of a call; empty for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	var reply goredis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &reply):
		return replyReason(reply.Error())
	case errors.As(err, &op) && op.Op == "dial":
		return ReasonDial
	}
	for _, c := range causes {
		if slices.ContainsFunc(c.errors, func(cause error) bool { return errors.Is(err, cause) }) {
			return c.reason
		}
	}
	if isTimeout(err) {
		return ReasonTimeout
	}
	return ReasonError
}

func replyReason(text string) string {
	for _, c := range causes {
		if slices.ContainsFunc(c.replies, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
			return c.reason
		}
	}
	if strings.Contains(text, "@user_script") || strings.Contains(text, "user_script:") {
		return ReasonScript
	}
	return ReasonError
}

// IsReply reports whether the server replied with an error that begins so.
func IsReply(err error, prefix string) bool {
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
	if err == nil || errors.Is(err, errUnsent) {
		return false
	}
	switch Reason(err) {
	case ReasonBreaker, ReasonOverload, ReasonShutdown, ReasonDeadline:
		return false
	case ReasonScript:
		return !IsReply(err, "NOSCRIPT")
	case ReasonNoPerm:
		return !IsReply(err, "NOPERM") // but a command in it
	}
	return !IsReply(err, "")
}
