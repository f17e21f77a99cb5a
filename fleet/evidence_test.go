package fleet

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
)

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
		"silent":                    {here, whole, errSilent, breaker.Silence},
		"silent in a hurry":         {here, short, errSilent, breaker.Neutral},
		"late":                      {here, whole, errPatience, breaker.Late},
		"late in a hurry":           {here, short, errPatience, breaker.Neutral},
		"no connection yet":         {here, whole, errNoLink, breaker.Neutral},
		"no answer to the greeting": {here, whole, &unsentError{context.DeadlineExceeded}, breaker.Silence},
		"refused connection":        {here, short, &unsentError{dialError("tcp", syscall.ECONNREFUSED)}, breaker.Failure},
		"lost connection":           {here, whole, io.EOF, breaker.Silence},
		"dropped connection":        {here, whole, net.ErrClosed, breaker.Neutral},
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
		n := &Node{bounds: &Bounds{Silence: 10 * time.Millisecond}}
		if got := n.evidence(step.ctx, new(Call), step.allow, step.err); got != step.want {
			t.Errorf("%s: %d, want %d", name, got, step.want)
		}
	}
}

// TestASuccessorMayBeLate: what was under way to the old master ends, and the new one has its replicas to serve.
func TestASuccessorMayBeLate(t *testing.T) {
	n := &Node{bounds: &Bounds{Silence: 10 * time.Millisecond}}
	n.since.Store(int64(max(processTime(), 1)))
	for _, err := range []error{errSilent, errPatience, errNoLink} {
		if got := n.evidence(context.Background(), new(Call), time.Second, err); got != breaker.Neutral {
			t.Errorf("%v of a server that has just succeeded another one: %d, want neutral", err, got)
		}
	}
	n.since.Store(int64(processTime() - settleWithin))
	if got := n.evidence(context.Background(), new(Call), time.Second, errSilent); got != breaker.Silence {
		t.Errorf("silence half a second later: %d, want silence", got)
	}
}
