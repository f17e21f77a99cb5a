package database

import (
	"context"
	"net"
	"sync"
	"time"
)

// AnswerWithin is how long PostgreSQL may be silent while it owes an answer. It ends each statement itself before that:
// statementWithin.
const AnswerWithin = StatementWithin + 2*time.Second

// patient is a connection to PostgreSQL that fails when an answer does not come: a network that loses everything would
// otherwise hold up a caller for ever. It does so only where the caller has set no deadline.
type patient struct {
	net.Conn
	mu  sync.Mutex // guards set
	set bool       // the caller has set a deadline
}

// dialPatiently connects.
func dialPatiently(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &patient{Conn: conn}, nil
}

// SetDeadline sets the caller's deadline; the zero time ends it.
func (p *patient) SetDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = !t.IsZero()
	return p.Conn.SetDeadline(t)
}

// Read reads within AnswerWithin, or the caller's deadline.
func (p *patient) Read(b []byte) (int, error) {
	p.mu.Lock()
	if !p.set {
		_ = p.Conn.SetReadDeadline(time.Now().Add(AnswerWithin)) // a connection that is closed fails below
	}
	p.mu.Unlock()
	return p.Conn.Read(b)
}
