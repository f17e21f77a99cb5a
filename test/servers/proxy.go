package servers

import (
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Mode is what a Proxy does to replies.
type Mode uint8

// The modes. A reply is what one read from the server brings: one whole reply where the client waits for each before it
// asks again.
const (
	Pass    Mode = iota // as it came
	Latency             // Delay ± Jitter later
	// swallowed, and requests with it; a connection that fell in stays dead, a new one is dead at once
	BlackHole
	// the request arrives, the reply does not, nor what would follow it on that connection: no network loses the middle
	// of a stream
	DropReplies
	ResetReplies // the first half arrives, then a reset
	HalfClose    // the end of the stream instead of the reply; requests still go through
	OneByte      // byte by byte
	Slices       // in parts of random lengths, Delay apart
	HoldOrReset  // by the toss of a coin: Delay ± Jitter later, or as ResetReplies
	Narrow       // of all connections together, Bytes in each Delay
)

// Fault is a mode with its numbers. The zero value passes everything.
type Fault struct {
	Mode   Mode
	Share  float64       // of replies that meet the fault, 0..1; 0 is all of them. Not for BlackHole, which takes all
	Delay  time.Duration // of Latency, HoldOrReset, Slices, Narrow
	Jitter time.Duration // Delay is longer or shorter by up to this, evenly
	Bytes  int           // of Narrow
}

// Proxy is a TCP proxy that does to connections what networks do. It is safe for concurrent use.
type Proxy struct {
	Addr string // where it listens

	target   string
	listener net.Listener
	fault    atomic.Pointer[Fault]
	done     chan struct{}
	running  sync.WaitGroup

	mu     sync.Mutex // guards all below
	conns  map[net.Conn]bool
	dead   map[*line]time.Time // since when
	deaths Deaths

	accepted, open, met, carried atomic.Int64

	narrow chan time.Time // when the last part of Narrow was due; the line that took it writes next
}

// Deaths is how many connections were dead and still held open by the client.
type Deaths struct {
	Total   int
	AtOnce  int           // the most at one moment
	Longest time.Duration // that one was
}

// StartProxy starts a proxy in front of an address. It ends, with its connections, when the test ends.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the proxy: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, done: make(chan struct{}),
		conns: map[net.Conn]bool{}, dead: map[*line]time.Time{}, narrow: make(chan time.Time, 1)}
	p.narrow <- time.Time{}
	p.Set(Fault{})
	p.running.Go(p.serve)
	t.Cleanup(p.stop)
	return p
}

// Set switches to another fault, for connections that are open, too. A reply under way still meets the old one.
func (p *Proxy) Set(f Fault) { p.fault.Store(&f) }

// Accepted is how many connections there have been.
func (p *Proxy) Accepted() int64 { return p.accepted.Load() }

// Open is how many connections the client holds open now, dead ones included.
func (p *Proxy) Open() int64 { return p.open.Load() }

// Dead is how many of the open connections fell into a black hole or are half-closed.
func (p *Proxy) Dead() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(len(p.dead))
}

// Deaths returns all dead connections so far, those that are open still included.
func (p *Proxy) Deaths() Deaths {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.deaths
	for _, since := range p.dead {
		all.Longest = max(all.Longest, time.Since(since))
	}
	return all
}

// Met is how many replies have met a fault.
func (p *Proxy) Met() int64 { return p.met.Load() }

// Carried is how many bytes of replies have come from the server.
func (p *Proxy) Carried() int64 { return p.carried.Load() }

// Sever resets all open connections.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

func (p *Proxy) stop() {
	close(p.done)
	p.listener.Close()
	p.Sever()
	p.running.Wait()
}

func (p *Proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		p.running.Go(func() { p.carry(c) })
	}
}

// track remembers an open connection until forget. It closes one that comes when the proxy has ended.
func (p *Proxy) track(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	select {
	case <-p.done:
		c.Close()
	default:
	}
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

// die notes that nothing will come over a line any more.
func (p *Proxy) die(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead[l] = time.Now()
	p.deaths.Total++
	p.deaths.AtOnce = max(p.deaths.AtOnce, len(p.dead))
}

// bury notes that the client has let go of a line.
func (p *Proxy) bury(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, found := p.dead[l]
	if !found {
		return
	}
	p.deaths.Longest = max(p.deaths.Longest, time.Since(since))
	delete(p.dead, l)
}

// line is one connection of a client with its own to the server.
type line struct {
	*Proxy
	client, server net.Conn
	fell           atomic.Bool // into a black hole
	deaf           atomic.Bool // a reply was dropped
}

// carry brings requests to the server and replies back until the client's side ends.
func (p *Proxy) carry(c net.Conn) {
	p.open.Add(1)
	defer p.open.Add(-1)
	p.track(c)
	defer p.forget(c)
	l := &line{Proxy: p, client: c}
	defer p.bury(l)
	if l.swallows() {
		io.Copy(io.Discard, c)
		return
	}
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(c)
		return
	}
	l.server = s
	p.track(s)
	defer p.forget(s)
	var back sync.WaitGroup
	back.Go(l.replies)
	l.requests()
	s.Close()
	back.Wait()
}

// swallows reports whether the connection is in a black hole, into which it may have fallen just now.
func (l *line) swallows() bool {
	if l.fell.Load() {
		return true
	}
	if l.fault.Load().Mode != BlackHole {
		return false
	}
	if l.fell.CompareAndSwap(false, true) {
		l.die(l)
	}
	return true
}

func (l *line) requests() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		if l.swallows() {
			continue
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			// The server is gone: what the client still sends is dropped, but its side ends by itself.
			io.Copy(io.Discard, l.client)
			return
		}
	}
}

// replies ends the client's stream when the server's ends, but not in a black hole, where the client does not notice
// it.
func (l *line) replies() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		l.carried.Add(int64(n))
		if l.swallows() {
			if err != nil {
				return
			}
			l.met.Add(1)
			continue
		}
		if err != nil || !l.reply(buf[:n]) {
			l.client.Close()
			return
		}
	}
}

// reply applies the fault to one reply, and reports whether the connection stays open.
func (l *line) reply(b []byte) bool {
	if l.deaf.Load() {
		return true
	}
	f := l.fault.Load()
	if f.Mode == Pass || f.Share > 0 && rand.Float64() >= f.Share {
		return l.send(b)
	}
	l.met.Add(1)
	switch f.Mode {
	case DropReplies:
		l.deaf.Store(true)
		return true
	case Latency:
		return l.pause(f.length()) && l.send(b)
	case OneByte:
		return l.slice(b, func(int) int { return 1 }, 0)
	case Slices:
		return l.slice(b, func(left int) int { return 1 + rand.IntN(max(1, min(left, 2*len(b)/3))) }, f.Delay)
	case Narrow:
		return l.squeeze(b, f)
	case HalfClose:
		l.die(l)
		l.client.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, l.server)
		return true
	case HoldOrReset:
		if rand.IntN(2) == 0 {
			return l.pause(f.length()) && l.send(b)
		}
	}
	l.send(b[:len(b)/2])
	reset(l.client)
	return false
}

func (l *line) send(b []byte) bool {
	_, err := l.client.Write(b)
	return err == nil
}

// slice writes b in parts whose lengths next chooses, given how many bytes are left.
func (l *line) slice(b []byte, next func(left int) int, apart time.Duration) bool {
	for len(b) > 0 {
		n := min(next(len(b)), len(b))
		if !l.send(b[:n]) {
			return false
		}
		b = b[n:]
		if apart == 0 {
			runtime.Gosched()
		} else if !l.pause(apart) {
			return false
		}
	}
	return true
}

// squeeze writes b in parts of at most Bytes, each when those of all lines before it have passed. A part that comes
// late does not delay the next, so that the rate is right on a busy machine as well; what is made up for is at most
// slack.
func (l *line) squeeze(b []byte, f *Fault) bool {
	const slack = 10 * time.Millisecond
	for part := range slices.Chunk(b, f.Bytes) {
		due := <-l.narrow
		if behind := time.Now().Add(-slack); due.Before(behind) {
			due = behind
		}
		due = due.Add(f.Delay * time.Duration(len(part)) / time.Duration(f.Bytes))
		alive := l.pause(time.Until(due))
		l.narrow <- due
		if !alive || !l.send(part) {
			return false
		}
	}
	return true
}

// length is Delay with its jitter.
func (f *Fault) length() time.Duration {
	return f.Delay + time.Duration((2*rand.Float64()-1)*float64(f.Jitter))
}

// pause waits, and reports whether the proxy lived on.
func (p *Proxy) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}

// reset closes a connection so that the other side gets a reset instead of an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}
