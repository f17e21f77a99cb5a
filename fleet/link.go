package fleet

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// link is one connection that many calls share. A writer takes whatever calls wait and writes them at once; a reader hands out the
// replies in their order. Neither waits for the other. A call that its caller has left stays in the line, and its reply is read.
type link struct {
	conn   net.Conn
	socket syscall.RawConn // below TLS, if there is TLS; nil: it cannot be looked at
	node   *Node
	poke   func()      // wakes the stream: the link ended, is silent, or speaks again
	stop   func() bool // of what ends the link with its node
	gone   chan struct{}

	heard   atomic.Uint64 // reads that brought something
	handing atomic.Bool   // the reader hands out what it has read
	silent  atomic.Bool   // the server owes replies and sends nothing
	suspect atomic.Bool   // the server is silent on another link, and has not spoken here since
	spoke   atomic.Int64  // when the server last sent something, on the wall
	retired atomic.Bool   // calls go elsewhere; what is owed is still read
	flights atomic.Int64  // calls that wait for a reply, or to be written

	wake chan struct{} // the writer has something to do

	mu     sync.Mutex // guards all below, and the calls' place in line
	queue  []*Call    // not written yet
	spare  []*Call    // memory for the next queue
	flight line       // written, in the order of their replies
	owed   int        // commands that these are; a batch is one
	lone   *loneWrite // of a call that is alone; nil: the writer writes all
	alone  bool       // such a call is being written, and the writer waits
	writes bool       // the writer writes
	rest   []byte     // what could not be written of it at once
	ended  error      // why the link ended; nil: it has not
	watch  watch

	batch     []*Call // that is being gathered
	batchKeys int     // of these calls
	unloaded  bool    // the server does not know the script of the batch
}

// newLink begins to carry calls over a connection that has been greeted.
func newLink(conn net.Conn, n *Node, poke func()) *link {
	l := &link{conn: conn, socket: socketOf(conn), node: n, poke: poke, gone: make(chan struct{}), wake: make(chan struct{}, 1)}
	if _, plain := conn.(syscall.Conn); plain && l.socket != nil {
		l.lone = newLoneWrite(l.socket)
	}
	l.watch.init(l)
	l.mu.Lock()
	l.stop = context.AfterFunc(n.ctx, func() { l.end(net.ErrClosed) })
	l.mu.Unlock()
	n.counts.opened.Add(1)
	n.running.Add(2)
	go l.write()
	go l.read()
	return l
}

// send puts a call in line. It fails if the link has ended, or takes no more calls.
func (l *link) send(c *Call, now, allow time.Duration) bool {
	l.mu.Lock()
	if l.ended != nil || l.retired.Load() {
		l.mu.Unlock()
		return false
	}
	l.watch.addLocked(c, now, allow)
	l.flights.Add(1)
	if l.lone != nil && !l.alone && l.flight.len() == 0 && len(l.queue) == 0 {
		l.flight.push(c)
		l.alone, l.owed = true, 1
		l.mu.Unlock()
		l.writeAlone(c)
		return true
	}
	l.queue = append(l.queue, c)
	write := !l.alone && (len(l.queue) == 1 || len(l.queue) == batchCalls)
	l.mu.Unlock()
	if write {
		l.wakeWriter()
	}
	return true
}

// wakeWriter tells the writer that there is something to do.
func (l *link) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// writeAlone writes a call that found nothing under way, without a detour by the writer. It does not wait: what the socket does not take
// at once is left to the writer.
func (l *link) writeAlone(c *Call) {
	l.lone.out = c.append(l.lone.out[:0])
	n, err := l.lone.write()
	if err != nil {
		l.end(err)
		return
	}
	l.mu.Lock()
	if n < len(l.lone.out) {
		l.rest = append([]byte(nil), l.lone.out[n:]...)
	}
	l.alone = false
	more := len(l.queue) > 0 || l.rest != nil
	l.mu.Unlock()
	if more {
		l.wakeWriter()
	}
}

// write writes what waits, again and again. Before each time it lets the goroutines that are ready run, so that what they send goes
// along; where none is ready that takes no time.
func (l *link) write() {
	defer l.node.running.Done()
	var out []byte
	for {
		select {
		case <-l.wake:
		case <-l.gone:
			return
		}
		runtime.Gosched()
		out = l.take(out[:0])
		if len(out) > 0 {
			if _, err := l.conn.Write(out); err != nil {
				l.end(err)
				return
			}
			l.wrote()
		}
		if cap(out) > keepBytes {
			out = nil
		}
	}
}

// wrote notes that what was taken is written.
func (l *link) wrote() {
	l.mu.Lock()
	l.writes = false
	l.mu.Unlock()
}

// keepBytes is how much memory for writing and reading is kept.
const keepBytes = 256 << 10

// take moves what waits into the line of those that are written, and appends its bytes to out, after what is left of an earlier write.
// Calls that were left meanwhile are over: they never were sent. While a call is written alone, or more are to come, there is nothing to take.
func (l *link) take(out []byte) []byte {
	l.mu.Lock()
	if l.alone || l.gathersLocked() {
		l.mu.Unlock()
		return out
	}
	out, l.rest = append(out, l.rest...), nil
	queue := l.queue
	l.queue = l.spare[:0]
	var unsent []*Call
	for _, c := range queue {
		if c.state.Load() != waiting {
			unsent = append(unsent, c)
			continue
		}
		if l.joinsLocked(c) {
			out = l.gatherLocked(out, c)
			continue
		}
		l.flight.push(c)
		l.owed++
		out = c.append(out)
	}
	out = l.writeBatchLocked(out)
	l.writes = len(out) > 0
	clear(queue)
	l.spare = queue
	l.mu.Unlock()
	for _, c := range unsent {
		l.flights.Add(-1)
		c.finish(errUnsent)
	}
	return out
}

// read hands out replies until the connection ends.
func (l *link) read() {
	defer l.node.running.Done()
	err := errPanicked
	guard(l.node.onPanic, func() { err = l.readAll() })
	l.end(err)
}

// readAll hands out replies, and returns why the connection has ended.
func (l *link) readAll() error {
	buf, from, to := make([]byte, 16<<10), 0, 0
	for {
		n, err := l.conn.Read(buf[to:])
		if n > 0 {
			to += n
			l.handing.Store(true)
			l.speaks()
			used, fault := l.deliver(buf[from:to])
			l.handing.Store(false)
			from += used
			if fault != nil {
				return fault
			}
		}
		if err != nil {
			return err
		}
		buf, from, to = l.room(buf, from, to)
	}
}

// room makes place to read into.
func (l *link) room(buf []byte, from, to int) ([]byte, int, int) {
	switch {
	case from == to:
		if cap(buf) > keepBytes {
			buf = make([]byte, 16<<10)
		}
		return buf, 0, 0
	case to < len(buf):
		return buf, from, to
	case from > 0:
		return buf, 0, copy(buf, buf[from:to])
	}
	return append(buf, make([]byte, len(buf))...), from, to
}

// speaks notes that the server sent something.
func (l *link) speaks() {
	now := int64(processTime())
	l.heard.Add(1)
	l.spoke.Store(now)
	l.node.heard.Store(now)
	if l.node.silentFrom.Load() != 0 {
		l.node.silentFrom.Store(0)
	}
	if l.suspect.Load() {
		l.suspect.Store(false)
	}
	if l.silent.Load() && l.silent.CompareAndSwap(true, false) {
		l.node.guard.Load().Nudge()
		l.poke()
	}
}

// doubt asks for a sign of life, because the server is silent on another link. Until there is one no call is sent here. The server has
// given one if it has sent something since it was asked.
func (l *link) doubt(asked time.Duration) {
	if time.Duration(l.spoke.Load()) > asked {
		return
	}
	l.suspect.Store(true)
	l.ping()
}

// ping sends a call for which the server has nothing to do.
func (l *link) ping() {
	c := &Call{Wire: command("PING")}
	c.begin()
	l.send(c, processTime(), lingerFor)
}

// deliver hands out the replies in b, and returns how many bytes they are.
func (l *link) deliver(b []byte) (used int, err error) {
	now := time.Duration(l.spoke.Load())
	for n := 0; ; n++ {
		size, fault := scan(b[used:], 0)
		if size == 0 || fault != nil {
			l.node.load.did(n)
			return used, fault
		}
		reply := b[used : used+size]
		used += size
		l.mu.Lock()
		c := l.flight.head()
		if c == nil {
			l.mu.Unlock()
			return used, errProtocol // it was not asked for
		}
		if c.skip > 0 {
			c.skip--
			l.mu.Unlock()
			continue
		}
		l.repliedLocked()
		if n == 0 && c.state.Load() == waiting {
			l.node.usual.add(now - c.began)
		}
		b, calls := c.batch, c.members
		if calls == 0 {
			l.answeredLocked(c)
			l.mu.Unlock()
			l.flights.Add(-1)
			c.finish(c.fill(reply))
			continue
		}
		c.members = 0
		l.mu.Unlock()
		fault = l.share(b, calls, reply)
		if fault != nil {
			return used, fault
		}
		n += calls - 1
	}
}

// end closes the link once, and finishes what it carries: what was not written never ran, of the rest that is not known.
func (l *link) end(err error) {
	l.mu.Lock()
	if l.ended != nil {
		l.mu.Unlock()
		return
	}
	l.ended = err
	l.retired.Store(true)
	queue, flight := l.queue, l.flight.drain()
	l.queue = nil
	l.watch.stopLocked()
	l.mu.Unlock()
	close(l.gone)
	l.stop()
	l.node.counts.ended.Add(1)
	_ = l.conn.Close() // what it carried is over in any case
	l.flights.Add(-int64(len(queue) + len(flight)))
	for _, c := range flight {
		c.finish(err)
	}
	for _, c := range queue {
		c.finish(errUnsent)
	}
	l.poke()
}

// retire sends further calls elsewhere. The link ends when nothing is owed any more, or after a while.
func (l *link) retire() {
	l.mu.Lock()
	l.retired.Store(true)
	idle := l.flight.len() == 0 && len(l.queue) == 0
	l.watch.retireLocked()
	l.mu.Unlock()
	if idle {
		l.end(net.ErrClosed)
	}
}

// usable reports whether calls may be sent on the link.
func (l *link) usable() bool { return !l.silent.Load() && !l.suspect.Load() && !l.retired.Load() }
