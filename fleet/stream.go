package fleet

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	knockFirst = 10 * time.Millisecond  // the pause after the first failure to connect
	knockLast  = 400 * time.Millisecond // what it grows to
	shortLife  = 5 * time.Millisecond   // a link that ended sooner counts as a failure to connect
)

// stream keeps one link to a server ready: it dials and greets at the start, after each loss, and beside a link that is silent, all of
// it beside the calls.
type stream struct {
	node  *Node
	link  atomic.Pointer[link] // nil: none
	wake  chan struct{}
	renew atomic.Int64 // how often the link was to be replaced

	renewed int64 // of these, before the link was dialled; only run uses it
}

func newStream(n *Node) *stream { return &stream{node: n, wake: make(chan struct{}, 1)} }

// poke wakes the stream.
func (s *stream) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run keeps a link until the context ends.
func (s *stream) run(ctx context.Context) {
	defer s.node.running.Done()
	var pause time.Duration
	for ctx.Err() == nil {
		if !s.wanted() {
			s.node.recovered(s)
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		began, renew := processTime(), s.renew.Load()
		fresh, err := s.connect(ctx)
		if err != nil {
			pause = min(max(2*pause, knockFirst), knockLast)
			s.node.failed(s, err)
			s.rest(ctx, pause)
			continue
		}
		s.renewed = renew
		s.replace(fresh)
		if !s.lived(ctx, fresh, began) {
			pause = min(max(2*pause, knockFirst), knockLast)
			s.rest(ctx, pause)
			continue
		}
		pause = 0
	}
}

// lived waits for the first moments of a link, and reports whether it outlived them.
func (s *stream) lived(ctx context.Context, l *link, began time.Duration) bool {
	wait := time.NewTimer(max(shortLife-(processTime()-began), 0))
	defer wait.Stop()
	select {
	case <-l.gone:
		return l.heard.Load() > 0
	case <-wait.C:
	case <-ctx.Done():
	}
	return true
}

// rest waits before the next try.
func (s *stream) rest(ctx context.Context, pause time.Duration) {
	wait := time.NewTimer(pause)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// wanted reports whether another link is needed.
func (s *stream) wanted() bool {
	l := s.link.Load()
	if l == nil || s.renew.Load() != s.renewed || l.silent.Load() {
		return true
	}
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// replace lets calls go over a new link. The old one is read for a while.
func (s *stream) replace(fresh *link) {
	old := s.link.Swap(fresh)
	if old != nil {
		old.retire()
	}
	s.node.connected(s)
}

// leave lets go of the link, because it leads to the wrong server. So may one that is being made: it is replaced as well.
func (s *stream) leave() {
	s.renew.Add(1)
	if l := s.link.Load(); l != nil {
		l.retire()
	}
	s.poke()
}

// connect dials and greets.
func (s *stream) connect(ctx context.Context) (*link, error) {
	conn, err := s.node.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	took, err := greet(conn, s.node.greeting(), s.node.servers.AnswerTimeout)
	stop()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	s.node.heard.Store(int64(processTime()))
	s.node.silentFrom.Store(0)
	if s.node.best() == nil { // all connections were lost: this may be another server under the same name, farther away
		s.node.usual.least.Store(0)
	}
	s.node.usual.begin(min(took, s.node.bounds.Patience))
	return newLink(conn, s.node, s.poke), nil
}

// greeting is what is said first on a connection.
type greeting struct {
	needed  [][]byte // commands that have to succeed: who we are, and which database we want
	prelude [][]byte // commands whose failure shows in the calls
}

// greet says the greeting, and returns how long the server takes to reply.
func greet(conn net.Conn, g greeting, within time.Duration) (took time.Duration, err error) {
	began := time.Now()
	if err := conn.SetDeadline(began.Add(within)); err != nil {
		return 0, err
	}
	var all []byte
	for _, c := range g.needed {
		all = append(all, c...)
	}
	for _, c := range g.prelude {
		all = append(all, c...)
	}
	all = append(all, command("PING")...)
	in := &greeter{conn: conn}
	if err := in.ask(all, len(g.needed), len(g.prelude)+1); err != nil {
		return 0, err
	}
	return time.Since(began), conn.SetDeadline(time.Time{})
}

// greeter reads replies one after the other.
type greeter struct {
	conn  net.Conn
	in    []byte
	fault error // the first error that the server replied with
}

// ask writes commands and reads as many replies: first of those that must not fail, then of the others.
func (g *greeter) ask(commands []byte, needed, others int) error {
	_, err := g.conn.Write(commands)
	for i := 0; i < needed+others; i++ {
		reply, end := g.next()
		if end != nil {
			return g.why(firstError(err, end))
		}
		if reply.Kind != failure {
			continue
		}
		fault := ReplyError(reply.Data)
		g.fault = firstError(g.fault, fault)
		if i < needed || hopeless(fault) {
			return g.why(err)
		}
	}
	return err
}

// hopeless reports whether a reply says that this connection will never be of use.
func hopeless(fault ReplyError) bool {
	why := Reason(fault)
	return why == ReasonClients || why == ReasonNoAuth
}

// why is what the server said before the connection was of no use, or else the error.
func (g *greeter) why(err error) error {
	if g.fault == nil {
		return err
	}
	return fmt.Errorf("greet the server: %w", g.fault)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *greeter) next() (Reply, error) {
	for {
		size, err := scan(g.in, 0)
		if err != nil {
			return Reply{}, err
		}
		if size > 0 {
			reply := parse(g.in[:size:size])
			g.in = g.in[size:]
			return reply, nil
		}
		var some [4 << 10]byte
		n, err := g.conn.Read(some[:])
		g.in = append(g.in, some[:n]...)
		if n == 0 && err != nil {
			return Reply{}, err
		}
	}
}

// socketOf is the socket of a connection, that below TLS if there is TLS; nil where there is none to look at.
func socketOf(conn net.Conn) syscall.RawConn {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	plain, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	socket, err := plain.SyscallConn()
	if err != nil {
		return nil
	}
	return socket
}
