package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/test/servers"
)

// guarded is a node with a breaker, and without a server.
func guarded(silence time.Duration, c breaker.Config) *Node {
	n := &Node{bounds: &Bounds{Silence: silence}}
	n.guard.Store(breaker.New(c))
	return n
}

func TestEvidence(t *testing.T) {
	gone, hangUp := context.WithCancel(context.Background())
	hangUp()
	here, whole, short := context.Background(), 10*time.Millisecond, 4*time.Millisecond
	reply := func(text string) error { return fmt.Errorf("call: %w", ReplyError(text)) }
	for name, step := range map[string]struct {
		ctx   context.Context
		allow time.Duration
		err   error
		want  breaker.Result
	}{
		"decided":                   {here, whole, nil, breaker.Success},
		"decided in a hurry":        {here, short, nil, breaker.Success},
		"the caller hung up":        {gone, whole, nil, breaker.Neutral},
		"silent, hung up":           {gone, whole, errSilent, breaker.Neutral},
		"silent":                    {here, whole, errSilent, breaker.Failure},
		"silent in a hurry":         {here, short, errSilent, breaker.Neutral},
		"late":                      {here, whole, errPatience, breaker.Late},
		"late in a hurry":           {here, short, errPatience, breaker.Neutral},
		"late by a stall of ours":   {here, whole, errDeadline, breaker.Neutral},
		"no connection yet":         {here, whole, errNoLink, breaker.Neutral},
		"no answer to the greeting": {here, whole, &unsentError{context.DeadlineExceeded}, breaker.Failure},
		"refused connection":        {here, short, &unsentError{dialError("tcp", syscall.ECONNREFUSED)}, breaker.Failure},
		"lost connection":           {here, whole, io.EOF, breaker.Failure},
		"lost while it was greeted": {here, whole, &unsentError{io.EOF}, breaker.Neutral},
		"loading":                   {here, whole, reply("LOADING"), breaker.Failure},
		"replica":                   {here, whole, reply("READONLY"), breaker.Failure},
		"too many clients":          {here, whole, reply("ERR max number of clients reached"), breaker.Failure},
		"out of memory":             {here, whole, reply("OOM"), breaker.Failure},
		"cannot save":               {here, whole, reply("MISCONF"), breaker.Failure},
		"in a script":               {here, whole, reply("BUSY"), breaker.Failure},
		"cluster is down":           {here, whole, reply("CLUSTERDOWN The cluster is down"), breaker.Failure},
		"slot without a server":     {here, whole, errVacant, breaker.Neutral},
		"key moved":                 {here, whole, reply("MOVED 1 h:1"), breaker.Neutral},
		"slots":                     {here, whole, reply("CROSSSLOT"), breaker.Success},
		"password":                  {here, whole, reply("WRONGPASS"), breaker.Success},
		"right":                     {here, whole, reply("NOPERM"), breaker.Success},
		"foreign value":             {here, whole, reply("WRONGTYPE"), breaker.Success},
		"script":                    {here, whole, reply("NOSCRIPT"), breaker.Success},
		"overload":                  {here, whole, errOverload, breaker.Neutral},
		"closed":                    {here, whole, errClosed, breaker.Neutral},
		"unknown reply":             {here, whole, reply("NEW"), breaker.Neutral},
		"unknown error":             {here, whole, io.ErrNoProgress, breaker.Failure},
	} {
		n := guarded(10*time.Millisecond, breaker.Config{})
		n.heard.Store(1)
		n.silentFrom.Store(int64(-time.Hour)) // long ago
		if got := n.evidence(step.ctx, new(Call), step.allow, step.err); got != step.want {
			t.Errorf("%s: %d, want %d", name, got, step.want)
		}
	}
}

// TestASuccessorMayBeLate: what was under way to the old master ends, and the new one has its replicas to serve.
func TestASuccessorMayBeLate(t *testing.T) {
	n := guarded(10*time.Millisecond, breaker.Config{})
	n.heard.Store(1)
	n.silentFrom.Store(int64(-time.Hour))
	n.since.Store(int64(max(processTime(), 1)))
	for _, err := range []error{errSilent, errPatience, errNoLink} {
		if got := n.evidence(context.Background(), new(Call), time.Second, err); got != breaker.Neutral {
			t.Errorf("%v of a server that has just succeeded another one: %d, want neutral", err, got)
		}
	}
	n.since.Store(int64(processTime() - settleWithin))
	if got := n.evidence(context.Background(), new(Call), time.Second, errSilent); got != breaker.Failure {
		t.Errorf("silence half a second later: %d, want a failure", got)
	}
}

// TestOneConnectionIsNotTheServer: a connection that is silent or lost shows nothing while the server speaks on another one.
func TestOneConnectionIsNotTheServer(t *testing.T) {
	n := guarded(time.Hour, breaker.Config{})
	n.heard.Store(1)
	n.silentFrom.Store(int64(max(processTime(), 1)))
	for _, err := range []error{errSilent, io.EOF} {
		if got := n.evidence(context.Background(), new(Call), 2*time.Hour, err); got != breaker.Neutral {
			t.Errorf("%v beside a connection that speaks: %d, want neutral", err, got)
		}
	}
}

// TestConnectionsThatEndAtOnceAreAFailureWhenThatLasts: a server that ends each new connection has failed, but not at the first one.
func TestConnectionsThatEndAtOnceAreAFailureWhenThatLasts(t *testing.T) {
	n := guarded(10*time.Millisecond, breaker.Config{})
	show := func() breaker.Result {
		return n.evidence(context.Background(), new(Call), 10*time.Millisecond, &unsentError{io.EOF})
	}
	if got := show(); got != breaker.Neutral {
		t.Errorf("the first: %d, want %d", got, breaker.Neutral)
	}
	n.lacking.since.Store(int64(processTime() - 30*time.Millisecond))
	if got := show(); got != breaker.Failure {
		t.Errorf("after 30 ms: %d, want %d", got, breaker.Failure)
	}
	n.evidence(context.Background(), new(Call), 10*time.Millisecond, nil)
	if got := show(); got != breaker.Neutral {
		t.Errorf("the first after a reply: %d, want %d", got, breaker.Neutral)
	}
}

// TestGreetingsWithoutAnAnswerAreAFailureWhenThatLasts: that the server was heard once does not excuse it for ever.
func TestGreetingsWithoutAnAnswerAreAFailureWhenThatLasts(t *testing.T) {
	n := guarded(time.Hour, breaker.Config{})
	n.heard.Store(1)
	show := func() breaker.Result {
		return n.evidence(context.Background(), new(Call), 2*time.Hour, &unsentError{context.DeadlineExceeded})
	}
	if got := show(); got != breaker.Neutral {
		t.Errorf("the first: %d, want %d", got, breaker.Neutral)
	}
	n.lacking.since.Store(int64(processTime() - aliveParts*time.Hour))
	if got := show(); got != breaker.Failure {
		t.Errorf("after three times the bound on silence: %d, want %d", got, breaker.Failure)
	}
	n.evidence(context.Background(), new(Call), 2*time.Hour, nil)
	if got := show(); got != breaker.Neutral {
		t.Errorf("the first after a reply: %d, want %d", got, breaker.Neutral)
	}
}

// TestASpellThatEndsMeanwhileIsShort: a call that finds no connection while another one finds some must not take the time since the
// process began for the time without connections.
func TestASpellThatEndsMeanwhileIsShort(t *testing.T) {
	var s spell
	began := processTime()
	var ends sync.WaitGroup
	var over atomic.Bool
	for range 2 {
		ends.Go(func() {
			for !over.Load() {
				s.end()
			}
		})
	}
	for range 300_000 {
		if got := s.lasts(); got > processTime()-began {
			t.Errorf("it lasts for %v, want at most the %v of this test", got, processTime()-began)
			break
		}
	}
	over.Store(true)
	ends.Wait()
}

// TestAServerThatComesAndGoesIsGivenTwiceTheTime: its breaker has closed a moment ago.
func TestAServerThatComesAndGoesIsGivenTwiceTheTime(t *testing.T) {
	n := guarded(time.Hour, breaker.Config{Open: 5 * time.Millisecond, Jitter: -1, Ramp: -1, Consecutive: 1, Probes: 1})
	show := func(err error, silent time.Duration) breaker.Result {
		n.heard.Store(1)
		n.silentFrom.Store(int64(processTime() - silent))
		n.lacking.since.Store(int64(processTime() - silent))
		return n.evidence(context.Background(), new(Call), 2*time.Hour, err)
	}
	lasting := map[error]time.Duration{errSilent: aliveParts * time.Hour, errNoLink: connectWithin}
	for err, bound := range lasting {
		if got := show(err, bound); got != breaker.Failure {
			t.Errorf("%v for %v: %d, want a failure", err, bound, got)
		}
	}
	flap := func() {
		_ = n.guard.Load().Do(func() breaker.Result { return breaker.Failure })
		servers.Await(t, "a breaker that closes", func() error {
			return n.guard.Load().Do(func() breaker.Result { return breaker.Success })
		})
	}
	for err, bound := range lasting {
		servers.Await(t, "a breaker that has just closed", func() error {
			flap()
			once, twice := show(err, bound), show(err, 2*bound)
			if !n.guard.Load().Flaps() {
				return errors.New("it closed too long ago")
			}
			if once != breaker.Neutral || twice != breaker.Failure {
				t.Errorf("%v for %v: %d, and twice as long: %d, want nothing and a failure", err, bound, once, twice)
			}
			return nil
		})
	}
}

// TestPingsDoNotSpeakForCalls: a server that answers greetings and pings, and no call, has failed, but not at the first one.
func TestPingsDoNotSpeakForCalls(t *testing.T) {
	n := guarded(time.Hour, breaker.Config{})
	n.heard.Store(1)
	show := func(what string, err error, want breaker.Result) {
		t.Helper()
		if got := n.evidence(context.Background(), new(Call), 2*time.Hour, err); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	show("the first without a reply", errSilent, breaker.Neutral)
	n.mute.since.Store(int64(processTime() - connectWithin))
	show("one that is silent, after a while", errSilent, breaker.Failure)
	show("one that is lost, after a while", io.EOF, breaker.Failure)
	n.evidence(context.Background(), new(Call), 2*time.Hour, ReplyError("WRONGTYPE"))
	show("the first after a reply", errSilent, breaker.Neutral)
}

// TestABreakerThatWasReplacedIsNotTold: what was under way to the old master may still fail.
func TestABreakerThatWasReplacedIsNotTold(t *testing.T) {
	var told []string
	f, n := open(t, Config{Servers: at(servers.StartRedis(t).Addr), OnBreaker: func(server string, from, to breaker.State, reason string) {
		told = append(told, reason)
	}})
	old := n.Breaker()
	n.succeed()
	for range 100 {
		_ = old.Do(func() breaker.Result { return breaker.Failure })
	}
	f.Close()
	if len(told) > 0 {
		t.Errorf("it is told that %q", told)
	}
}
