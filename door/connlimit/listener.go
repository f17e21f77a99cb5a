package connlimit

import "net"

// Kind is what a listener's connections are like.
type Kind struct {
	Name  string // in metrics and in the log
	Conns int    // how many there may be; 0: as many as the budget holds
	Bytes int64  // what one takes that does nothing
	HTTP2 bool   // they speak gRPC; else HTTP/1
	Whole int64  // over HTTP/1, how much of a request the server keeps; what is longer, it reads and lets go
	TLS   bool   // what the socket carries is encrypted: HTTP/2 is followed by who decrypts it
}

type listener struct {
	net.Listener
	limit *Limit
	kind  Kind
	open  int // guarded by Limit.mu
}

// Listen returns a listener whose connections are within the limit. A nil listener stays nil.
func (l *Limit) Listen(inner net.Listener, kind Kind) net.Listener {
	if inner == nil {
		return nil
	}
	at := &listener{Listener: inner, limit: l, kind: kind}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = append(l.listeners, at)
	return at
}

// Accept returns the next connection. It makes room for it.
func (at *listener) Accept() (net.Conn, error) {
	conn, err := at.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := at.limit.register(conn, at)
	if victim := at.crowded(); victim != nil {
		at.limit.shut(victim, Room)
	}
	if at.limit.held.Load() > at.limit.most {
		at.limit.makeRoom()
	}
	return c, nil
}

// crowded is the connection that has to go because the listener has too many, or nil.
func (at *listener) crowded() *Conn {
	l := at.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.kind.Conns == 0 || at.open <= at.kind.Conns {
		return nil
	}
	count := map[*peer]int{}
	var most *peer
	for c := range l.conns {
		if c.at != at {
			continue
		}
		count[c.peer]++
		if most == nil || count[c.peer] > count[most] {
			most = c.peer
		}
	}
	return l.leastWorth(most, at)
}
