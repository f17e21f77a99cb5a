package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// queued sends a call that may be part of a batch, and does not wait for it.
func queued(t *testing.T, l *link, key string, b *Batch) *Call {
	t.Helper()
	c := &Call{Wire: AppendWord(AppendWord(AppendWord(AppendCommand(nil, 5), "EVAL"), aloneText), "1")}
	keysAt := len(c.Wire)
	c.Wire = AppendWord(c.Wire, key)
	argumentAt := len(c.Wire)
	c.Wire = AppendWord(c.Wire, "x")
	c.Join(b, 1, keysAt, argumentAt)
	c.begin()
	if !l.send(c, processTime(), time.Hour) {
		t.Fatal("the link takes no call")
	}
	return c
}

// other is the server's end of a link.
type other struct {
	conn net.Conn
	in   *bufio.Reader
}

// keys are those of the next command.
func (o *other) keys(t *testing.T) []string {
	t.Helper()
	if err := o.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	words, err := readCommand(o.in)
	if err != nil {
		t.Fatalf("read a command: %v", err)
	}
	var n int
	fmt.Sscan(words[2], &n)
	return words[3 : 3+n]
}

// reply answers a command about these keys.
func (o *other) reply(t *testing.T, keys ...string) {
	t.Helper()
	answer := "alone " + keys[0] + " x"
	if len(keys) > 1 {
		answer = "batch " + strings.Join(keys, " x;") + " x;"
	}
	if _, err := io.WriteString(o.conn, text(answer)); err != nil {
		t.Fatalf("write a reply: %v", err)
	}
}

// busyLink is a link to a server that owes replies to two commands, about the keys a and b, and usually takes as many times as long as the way.
func busyLink(t *testing.T, times int64) (*link, *other) {
	t.Helper()
	n, links, ends := pair(t)
	server := &other{ends[0], bufio.NewReader(ends[0])}
	for _, key := range []string{"a", "b"} {
		queued(t, links[0], key, testBatch)
		expect(t, server.keys(t), key)
	}
	n.usual.least.Store(int64(time.Millisecond))
	n.usual.ns.Store(times * int64(time.Millisecond))
	return links[0], server
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("a command is about %q, want %q", got, want)
	}
}

// stays fails if the link writes what waits.
func stays(t *testing.T, l *link) {
	t.Helper()
	if out := l.take(nil); len(out) > 0 {
		t.Fatalf("the server owes two replies, and gets %q", out)
	}
}

// What a server that is busy would not begin with waits, and goes together after a reply.
func TestCallsWaitForOthersWhileTheServerIsBusy(t *testing.T) {
	l, server := busyLink(t, 3)
	c := queued(t, l, "c", testBatch)
	stays(t, l)
	d := queued(t, l, "d", testBatch)
	server.reply(t, "a")
	expect(t, server.keys(t), "c", "d")
	server.reply(t, "b")
	server.reply(t, "c", "d")
	for _, call := range []*Call{c, d} {
		if err := <-call.done; err != nil {
			t.Errorf("a call that waited: %v", err)
		}
	}
	owedNothing(t, l)
}

// owedNothing waits until the link counts no command that has no reply.
func owedNothing(t *testing.T, l *link) {
	t.Helper()
	await(t, "a link that is owed nothing", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.owed == 0 && l.flight.len() == 0
	})
}

// A batch that is full does not wait.
func TestAFullBatchDoesNotWait(t *testing.T) {
	l, server := busyLink(t, 3)
	var keys []string
	for i := range batchCalls {
		keys = append(keys, fmt.Sprint("key", i))
		await(t, "a writer that has looked", func() bool { return len(l.wake) == 0 })
		stays(t, l)
		queued(t, l, keys[i], testBatch)
	}
	expect(t, server.keys(t), keys...)
}

// A server whose replies take little longer than the way is not busy, and begins with a call as soon as it comes.
func TestNoCallWaitsForOthersWhereTheServerIsNotBusy(t *testing.T) {
	l, server := busyLink(t, 2)
	queued(t, l, "c", testBatch)
	expect(t, server.keys(t), "c")
}

// A call that is part of no batch has nothing to wait for.
func TestACallWithoutABatchDoesNotWait(t *testing.T) {
	l, server := busyLink(t, 3)
	queued(t, l, "c", nil)
	expect(t, server.keys(t), "c")
}

// A link that ends while calls wait has not sent them.
func TestALinkThatEndsHasNotSentWhatWaits(t *testing.T) {
	l, _ := busyLink(t, 3)
	c := queued(t, l, "c", testBatch)
	stays(t, l)
	l.end(io.EOF)
	if err := <-c.done; !errors.Is(err, errUnsent) {
		t.Errorf("a call that waited ends with %v, want %v", err, errUnsent)
	}
}
