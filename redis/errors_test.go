package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

func TestReasonsOfReplies(t *testing.T) {
	for text, reason := range map[string]string{
		"LOADING Redis is loading the dataset in memory":                           ReasonLoading,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is 'no'": ReasonLoading,
		"MISCONF Redis is configured to save RDB snapshots script: 0123, on @u:1":  ReasonMisconf,
		"ERR max number of clients reached":                                        ReasonClients,
		"BUSY Redis is busy running a script.":                                     ReasonBusy,
		"MOVED 3999 127.0.0.1:6381":                                                ReasonCluster,
		"CLUSTERDOWN Hash slot not served":                                         ReasonCluster,
		"CROSSSLOT Keys in request don't hash to the same slot":                    ReasonSlot,
		"WRONGPASS invalid username-password pair or user is disabled.":            ReasonNoAuth,
		"ERR user_script:1: attempt to index a nil value script: 0123":             ReasonScript,
		"ERR attempt to compare nil with number script: 01, on @user_script:7.":    ReasonScript,
		"ERR The user executing the script can't run this command or subcommand":   ReasonNoPerm,
		"ERR ACL failure in script: User x has no permissions":                     ReasonNoPerm,
		"something new": ReasonError,
	} {
		if got := replyReason(text); got != reason {
			t.Errorf("%q is %q, want %q", text, got, reason)
		}
	}
}

func unsent(err error) error { return fmt.Errorf("%w: %w", errUnsent, err) }

func TestWhatMayHaveRun(t *testing.T) {
	refused := dialError(syscall.ECONNREFUSED)
	for _, step := range []struct {
		err    error
		reason string
		may    bool
	}{
		{nil, "", false},
		{breaker.ErrOpen, ReasonBreaker, false},
		{errOverload, ReasonOverload, false},
		{errLeft, ReasonDeadline, false},
		{errClosed, ReasonShutdown, false},
		{unsent(goredis.ErrClosed), ReasonShutdown, false},
		{unsent(refused), ReasonDial, false},
		{unsent(io.EOF), ReasonClosed, false},
		{unsent(goredis.ErrPoolTimeout), ReasonTimeout, false},
		{unsent(errClients), ReasonClients, false},
		{unsent(errUnknown), ReasonCluster, false},
		{io.EOF, ReasonClosed, true},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), ReasonClosed, true},
		{&net.OpError{Op: "read", Err: context.DeadlineExceeded}, ReasonTimeout, true},
		{errReply, ReasonReply, true},
		{errPanicked, ReasonError, true},
		{errors.New("redis: can't parse"), ReasonError, true},
		{goredis.ErrNoScript, ReasonScript, false},
		{goredis.ErrCrossSlot, ReasonSlot, false},
	} {
		if got := Reason(step.err); got != step.reason || MayHaveRun(step.err) != step.may {
			t.Errorf("%v is %q and may have run: %v; want %q, %v", step.err, got, MayHaveRun(step.err), step.reason,
				step.may)
		}
	}
}

func TestTheReasonOfNothingNeedsNoMemory(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _ = Reason(nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRedirectsNameAddressesThatCanBeDialled also where a server knows no host, names its own machine, or writes no
// brackets.
func TestRedirectsNameAddressesThatCanBeDialled(t *testing.T) {
	for _, step := range []struct{ named, origin, want string }{
		{"10.0.0.2:6381", "10.0.0.1:6379", "10.0.0.2:6381"},
		{"redis-2.local:6381", "10.0.0.1:6379", "redis-2.local:6381"},
		{"::1:6381", "[::1]:6379", "[::1]:6381"},
		{"[fd00::2]:6381", "10.0.0.1:6379", "[fd00::2]:6381"},
		{"fd00::2:6381", "10.0.0.1:6379", "[fd00::2]:6381"},
		{":6381", "10.0.0.1:6379", "10.0.0.1:6381"},
		{":6381", "[fd00::1]:6379", "[fd00::1]:6381"},
		{"127.0.0.1:6381", "10.0.0.1:6379", "10.0.0.1:6381"},
		{"127.0.0.1:6381", "127.0.0.1:6379", "127.0.0.1:6381"},
		{"nowhere", "10.0.0.1:6379", ""},
		{":", "10.0.0.1:6379", ""},
	} {
		if got := reachable(step.named, step.origin); got != step.want {
			t.Errorf("%q of %s leads to %q, want %q", step.named, step.origin, got, step.want)
		}
	}
}
