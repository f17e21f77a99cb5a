package fleet

import (
	"bufio"
	"context"
	"net"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// pair is a node with two links, and the server's ends of them. The server is silent after an hour, so only what a test changes matters.
func pair(t *testing.T) (n *Node, links [2]*link, ends [2]net.Conn) {
	t.Helper()
	f := &Fleet{bounds: Bounds{Silence: time.Hour, Patience: time.Hour}.withDefaults()}
	n = f.node("n")
	for i := range links {
		here, there := net.Pipe()
		links[i], ends[i] = newLink(here, n, func() {}), there
		links[i].mu.Lock()
		links[i].watch.clock = 3 * time.Hour
		links[i].mu.Unlock()
		s := newStream(n)
		s.link.Store(links[i])
		n.streams = append(n.streams, s)
		t.Cleanup(func() { links[i].end(net.ErrClosed); there.Close() })
	}
	return n, links, ends
}

// quietFor looks at a link that has owed a reply for so long, while no processor of the machine is idle. If the server was heard on another one
// meanwhile, that was so long ago.
func quietFor(l *link, quiet, passed time.Duration) {
	l.mu.Lock()
	l.watch.spoke = l.watch.clock - quiet
	l.flight.head().sent = l.watch.spoke
	if l.watch.passed > 0 {
		l.watch.passed = l.watch.clock - passed
	}
	idle, _ := idled()
	l.watch.quiet, l.watch.idle = true, idle+time.Hour
	l.mu.Unlock()
	l.watch.look()
}

// owe sends a call, and returns when the server has read it.
func owe(t *testing.T, l *link, server *bufio.Reader) *Call {
	t.Helper()
	c := incr("k")
	c.begin()
	if !l.send(c, processTime(), 2*time.Hour) {
		t.Fatal("the link takes no call")
	}
	for range 5 { // *2 $4 INCR $1 k
		if _, err := server.ReadString('\n'); err != nil {
			t.Fatalf("read the call: %v", err)
		}
	}
	await(t, "a call that is written", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 0 && !l.writes
	})
	return c
}

// TestALinkThatIsPassedIsSilentAlone: a server that answers on another link meanwhile has had a processor, so that no processor is idle is
// no excuse, and the server itself is not silent.
func TestALinkThatIsPassedIsSilentAlone(t *testing.T) {
	n, links, ends := pair(t)
	c := owe(t, links[0], bufio.NewReader(ends[0]))
	other := bufio.NewReader(ends[1])
	quietFor(links[0], 31*time.Minute, 0)
	for range 3 { // *1 $4 PING
		if _, err := other.ReadString('\n'); err != nil {
			t.Fatalf("after half of the bound the other link is asked nothing: %v", err)
		}
	}
	quietFor(links[0], time.Hour+time.Millisecond, 0)
	if links[0].silent.Load() {
		t.Fatal("the link is silent, though no processor was idle")
	}
	if _, err := ends[1].Write([]byte("+PONG\r\n")); err != nil {
		t.Fatal(err)
	}
	await(t, "a server that was heard on the other link", func() bool { return n.heard.Load() > 0 })
	quietFor(links[0], time.Hour+time.Millisecond, 0)
	if links[0].silent.Load() {
		t.Fatal("the link is silent as soon as the server is heard elsewhere: its reply may be on the way")
	}
	quietFor(links[0], time.Hour+time.Millisecond, time.Hour+time.Millisecond)
	if !links[0].silent.Load() {
		t.Fatal("the link is not silent, though the server answers on another one")
	}
	if err := <-c.done; err != errSilent {
		t.Errorf("the call on the silent link ended with %v, want %v", err, errSilent)
	}
	if n.silentFrom.Load() != 0 || !links[1].usable() {
		t.Errorf("the server is silent: %v, the other link is usable: %v; want no and yes", n.silentFrom.Load() != 0, links[1].usable())
	}
}

// TestAServerThatAnswersOnNoLinkIsSilent after the bound and what is added to it while no processor is idle.
func TestAServerThatAnswersOnNoLinkIsSilent(t *testing.T) {
	n, links, ends := pair(t)
	c := owe(t, links[0], bufio.NewReader(ends[0]))
	asked := make(chan error, 1)
	go func() {
		other := bufio.NewReader(ends[1])
		var err error
		for range 6 { // two PINGs
			if err == nil {
				_, err = other.ReadString('\n')
			}
		}
		asked <- err
	}()
	quietFor(links[0], time.Hour-time.Minute, 0)
	quietFor(links[0], time.Hour+crowdedFor, 0)
	if err := <-c.done; err != errSilent {
		t.Errorf("the call ended with %v, want %v", err, errSilent)
	}
	if n.silentFrom.Load() == 0 || links[1].usable() {
		t.Errorf("the server is silent: %v, the other link is usable: %v; want yes and no", n.silentFrom.Load() != 0, links[1].usable())
	}
	if err := <-asked; err != nil {
		t.Errorf("the other link: %v", err)
	}
}

// TestWhatIsBeingHandedOutIsNoSilence: a reader may stand still between what it has read and the calls that this is for.
func TestWhatIsBeingHandedOutIsNoSilence(t *testing.T) {
	_, links, ends := pair(t)
	server := bufio.NewReader(ends[0])
	held, second := owe(t, links[0], server), owe(t, links[0], server)
	held.leave(errPatience)
	reached, release := make(chan struct{}), make(chan struct{})
	held.Adopt(func(*Call, error) { close(reached); <-release })
	if _, err := ends[0].Write([]byte(":1\r\n:2\r\n")); err != nil {
		t.Fatal(err)
	}
	<-reached
	for range 2 { // the first look sees what was read
		quietFor(links[0], time.Hour+crowdedFor, 0)
	}
	if links[0].silent.Load() {
		t.Error("the link is silent, though its reader has the reply")
	}
	close(release)
	if err := <-second.done; err != nil {
		t.Errorf("the second call ended with %v, want its reply", err)
	}
}

// TestAStallUsesUpNoPatience: what a call has left for a second try is counted in process time. A stall of this process between the call and
// its reply takes nothing away.
func TestAStallUsesUpNoPatience(t *testing.T) {
	_, links, ends := pair(t)
	l := links[0]
	c := owe(t, l, bufio.NewReader(ends[0]))
	l.mu.Lock()
	l.watch.looked -= time.Hour
	c.began -= time.Hour
	l.mu.Unlock()
	_, err := ends[0].Write([]byte(":1\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	err = <-c.done
	if err != nil || c.Spent() > time.Minute {
		t.Errorf("after a stall of an hour the call has used up %v (%v)", c.Spent(), err)
	}
}

// TestADeadlinePassesDuringStalls: a process that gets little of the processors keeps its patience, but its caller's deadline comes all the same.
func TestADeadlinePassesDuringStalls(t *testing.T) {
	_, links, ends := pair(t)
	l := links[0]
	c := owe(t, l, bufio.NewReader(ends[0]))
	l.mu.Lock()
	c.until = processTime() + time.Hour
	l.watch.hurryLocked(c)
	l.mu.Unlock()
	l.watch.look()
	if c.state.Load() != waiting {
		t.Fatal("the call was left an hour before its caller has to be answered")
	}
	l.mu.Lock()
	c.until = processTime()
	l.watch.until = c.until
	l.mu.Unlock()
	l.watch.look()
	if err := <-c.done; err != errDeadline || !c.Pending() {
		t.Errorf("the call ended with %v, pending: %v; want %v and yes", err, c.Pending(), errDeadline)
	}
	if why := Reason(errDeadline); why != ReasonTimeout || MayHaveRun(errDeadline) {
		t.Errorf("the reason is %s, and the call may have run: %v; want %s, and that its reply is awaited", why, MayHaveRun(errDeadline), ReasonTimeout)
	}
}

// TestAReplyThatArrivedIsReadBeforeTheDeadline: the stall of a process may end with the reply already there, and the deadline near.
func TestAReplyThatArrivedIsReadBeforeTheDeadline(t *testing.T) {
	f := &Fleet{bounds: Bounds{Silence: time.Hour, Patience: time.Hour}.withDefaults()}
	here, there := sockets(t)
	l := newLink(here, f.node("n"), func() {})
	defer l.end(net.ErrClosed)
	server := bufio.NewReader(there)
	c := owe(t, l, server)
	l.mu.Lock()
	// The reader takes one reply and waits for the lock; what comes next stays in the socket.
	_, err := there.Write([]byte(":1\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "a reader that waits", func() bool { return l.heard.Load() == 1 })
	_, err = there.Write([]byte(":2\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "bytes to read", func() bool { return readable(l.socket) })
	c.until = processTime()
	l.watch.until, l.watch.looked = c.until, c.until
	l.watch.expireLocked(false)
	l.mu.Unlock()
	if err := <-c.done; err != nil {
		t.Errorf("the call ended with %v, want its reply", err)
	}
}

// TestDoKnowsTheDeadline of its caller: the wait ends halfway between the end of its patience and that.
func TestDoKnowsTheDeadline(t *testing.T) {
	server := servers.StartRedis(t)
	_, n := open(t, Config{Servers: at(server.Addr), Bounds: Bounds{Silence: time.Minute}})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
	defer cancel()
	c := incr("k")
	if err := n.Do(ctx, c, time.Hour); err != nil {
		t.Fatal(err)
	}
	if left := c.until - processTime(); left < time.Hour || left > 2*time.Hour {
		t.Errorf("the wait may take %v, want two hours", left)
	}
	if err := n.Do(t.Context(), c, time.Hour); err != nil || c.until != 0 {
		t.Errorf("without a deadline the wait ends at %v (%v)", c.until, err)
	}
}
