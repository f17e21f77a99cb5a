package simulation

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"time"
)

// server is a Redis server. It runs one command at a time, at one instant, and writes the replies of what it read
// together.
type server struct {
	name    string
	network *network
	turn    chan struct{} // held by who runs commands; a channel, because time passes meanwhile
	db      *database
	scripts *scripts
	role    role                         // among other servers; nil: a single server
	onLost  func(where string)           // replies were lost with their connection
	asked   func(c *conn, keys [][]byte) // a script runs; nil: nothing is called
	// publishes gives a message to the subscribers of all servers.
	publishes func(channel, text string) int64

	mu       sync.Mutex // guards all below
	up       bool
	downs    int       // faults that keep it down
	readOnly bool      // it is a replica
	pending  []change  // on their way from its master
	stalled  time.Time // it runs nothing before
	conns    map[*conn]bool
	heard    map[string]map[*conn]bool // who has subscribed to a channel
}

func newServer(n *network, name string, clock func() time.Time) *server {
	s := &server{
		name: name, network: n, turn: make(chan struct{}, 1), db: newDatabase(clock),
		conns: map[*conn]bool{}, heard: map[string]map[*conn]bool{},
	}
	s.scripts = newScripts(s)
	return s
}

func (s *server) start() {
	s.turn <- struct{}{}
	s.scripts.flush()
	<-s.turn
	s.mu.Lock()
	s.up = true
	s.mu.Unlock()
	s.network.serve(s.name, s.take)
}

// stop ends the process: all connections are reset, and further ones refused.
func (s *server) stop() {
	s.network.serve(s.name, nil)
	s.mu.Lock()
	s.up = false
	all := inOrder(s.conns)
	s.mu.Unlock()
	for _, c := range all {
		c.reset()
	}
}

// empty forgets everything, as a server without persistence does that was restarted.
func (s *server) empty() {
	s.turn <- struct{}{}
	s.db.clear()
	s.scripts.flush()
	<-s.turn
}

// downBy counts the faults that keep the server down.
func (s *server) downBy(by int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.downs += by
	return s.downs
}

func (s *server) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

func (s *server) setReadOnly(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readOnly = on
}

// mayWrite reports whether the server is a master.
func (s *server) mayWrite() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.readOnly
}

// hostPort are the parts of its address.
func (s *server) hostPort() (host string, port int64) {
	host, text, _ := strings.Cut(s.name, ":")
	port, _ = strconv.ParseInt(text, 10, 64)
	return host, port
}

// stall lets the server run nothing until then.
func (s *server) stall(until time.Time) {
	s.mu.Lock()
	if until.After(s.stalled) {
		s.stalled = until
	}
	s.mu.Unlock()
}

// take serves one connection.
func (s *server) take(c *conn) {
	s.mu.Lock()
	up := s.up
	s.conns[c] = true
	s.mu.Unlock()
	defer s.leave(c)
	if !up {
		c.reset()
		return
	}
	var in []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if c.way.loses() {
			s.onLost("the requests of " + string(c.peer.name))
			c.reset()
			return
		}
		in = append(in, buf[:n]...)
		used, out, ok := s.run(c, in)
		if !ok {
			return
		}
		in = in[:copy(in, in[used:])]
		if len(out) == 0 {
			continue
		}
		if c.peer.way.loses() {
			s.onLost("the replies to " + string(c.peer.name))
			c.reset()
			return
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func (s *server) leave(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	for _, all := range s.heard {
		delete(all, c)
	}
	s.mu.Unlock()
	_ = c.Close()
}

// run runs the whole commands in what was read. It reports false when the server has ended meanwhile.
func (s *server) run(c *conn, in []byte) (used int, out []byte, ok bool) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	for {
		words, size := parseCommand(in[used:])
		if size == 0 {
			return used, out, true
		}
		if !s.pass() {
			return 0, nil, false
		}
		used += size
		if s.role == nil {
			s.catchUp()
		}
		out = s.execute(c, words, out)
	}
}

// pass waits while the server is stalled, and reports whether it is up.
func (s *server) pass() bool {
	for {
		s.mu.Lock()
		until, up := s.stalled, s.up
		s.mu.Unlock()
		wait := time.Until(until)
		if !up || wait <= 0 {
			return up
		}
		elapse(wait)
	}
}

func (s *server) subscribe(c *conn, channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard[channel] == nil {
		s.heard[channel] = map[*conn]bool{}
	}
	s.heard[channel][c] = true
}

// hand gives a message to those who have subscribed here.
func (s *server) hand(channel, text string) int64 {
	s.mu.Lock()
	to := inOrder(s.heard[channel])
	s.mu.Unlock()
	message := appendTexts(nil, "message", channel, text)
	for _, c := range to {
		_, _ = c.Write(message)
	}
	return int64(len(to))
}

// parseCommand reads one command of the protocol; size is 0 where it is not whole yet. The words are part of b.
func parseCommand(b []byte) (words [][]byte, size int) {
	count, at := parseLine(b, 0, '*')
	for range count {
		length, next := parseLine(b, at, '$')
		if next == 0 || len(b) < next+length+2 {
			return nil, 0
		}
		words = append(words, b[next:next+length])
		at = next + length + 2
	}
	return words, at
}

// parseLine reads a number behind a byte; next is 0 where the line is not whole.
func parseLine(b []byte, at int, kind byte) (number, next int) {
	if at >= len(b) {
		return 0, 0
	}
	end := bytes.Index(b[at:], []byte("\r\n"))
	if end < 0 {
		return 0, 0
	}
	if b[at] != kind {
		panic("simulation: the client does not speak Redis' protocol: " + string(b[at:at+end]))
	}
	for _, digit := range b[at+1 : at+end] {
		number = 10*number + int(digit-'0')
	}
	return number, at + end + 2
}

func appendText(b []byte, text string) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(text)), 10)
	b = append(b, '\r', '\n')
	b = append(b, text...)
	return append(b, '\r', '\n')
}

func appendTexts(b []byte, texts ...string) []byte {
	b = appendHead(b, '*', int64(len(texts)))
	for _, text := range texts {
		b = appendText(b, text)
	}
	return b
}

func appendHead(b []byte, kind byte, n int64) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, n, 10)
	return append(b, '\r', '\n')
}
