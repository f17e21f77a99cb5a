package store

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

// newSentinel sets up the master that the sentinels name. The library asks them for it with each new connection, and drops
// the connections to the old one when they tell of a new one.
func newSentinel(s Servers, prefix string, g guards) *solo {
	o := &solo{guards: g}
	options := s.options("")
	o.dialer = newDialer(options, o.nudge)
	o.dialer.spared = s.Addresses
	last := &lastMaster{dial: o.dialer.connect, within: s.DialTimeout / 2, word: min(s.DialTimeout, longestAnswer) / 8, changed: o.succeed}
	failover := &redis.FailoverOptions{
		MasterName: s.Master, SentinelAddrs: slices.Clone(s.Addresses), Dialer: last.connect,
		Username: options.Username, Password: options.Password, CredentialsProvider: options.CredentialsProvider, DB: options.DB, TLSConfig: options.TLSConfig,
		MaxRetries: options.MaxRetries, ContextTimeoutEnabled: true,
		DialTimeout: options.DialTimeout, DialerRetries: options.DialerRetries,
		ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout, PoolTimeout: options.PoolTimeout,
		// The library would keep idle connections to each sentinel, too. The warmer sees to those to the master.
		PoolSize: options.PoolSize, PipelinePoolSize: options.PipelinePoolSize,
		ConnMaxIdleTime: options.ConnMaxIdleTime, ConnMaxLifetime: options.ConnMaxLifetime, ConnMaxLifetimeJitter: options.ConnMaxLifetimeJitter,
		DisableIdentity: true,
	}
	if s.Sentinels != nil {
		failover.SentinelUsername, failover.SentinelPassword = s.Sentinels()
	}
	client := redis.NewFailoverClient(failover)
	client.AddHook(last)
	o.sentinels = &resolver{errands: &o.dialer.dials, within: s.DialTimeout, dial: client.Options().Dialer}
	o.start(prefix+s.Master, client, s)
	return o
}

// succeed is called when there is a new master. It starts with a closed breaker: what its predecessor did says nothing about it.
func (o *solo) succeed() {
	old := o.current.Load()
	if old == nil {
		return // it has not begun
	}
	fresh := &node{name: old.name, guard: o.guards.guard(old.name, o.dialer.cull), since: time.Now(), client: old.client, sender: old.sender, warmer: old.warmer, resolve: old.resolve}
	o.current.Store(fresh)
	if state := old.guard.State(); state != breaker.Closed && o.guards.onChange != nil {
		o.guards.onChange(old.name, state, breaker.Closed, "another master")
	}
	fresh.warmer.wake()
}

// resolver asks the sentinels for the master before a connection is needed, for one caller at a time on behalf of all.
type resolver struct {
	errands *errands
	within  time.Duration
	dial    func(ctx context.Context, network, address string) (net.Conn, error) // the library's, which drops connections to another master

	mu     sync.Mutex    // guards asking
	asking chan struct{} // closed when the sentinels have answered; nil: nobody asks
}

// resolve waits until the sentinels have answered, or the caller has no time left.
func (r *resolver) resolve(ctx context.Context) {
	select {
	case <-r.ask():
	case <-ctx.Done():
	}
}

func (r *resolver) ask() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asking != nil {
		return r.asking
	}
	answered := make(chan struct{})
	if !r.errands.begin() {
		close(answered)
		return answered
	}
	r.asking = answered
	go func() {
		defer r.errands.done()
		r.find()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asking = nil
		close(answered)
	}()
	return answered
}

// find connects to the master and lets go of it.
func (r *resolver) find() {
	ctx, cancel := context.WithTimeout(context.Background(), r.within)
	defer cancel()
	conn, err := r.dial(ctx, "tcp", "")
	if err == nil {
		conn.Close()
	}
}

// lastMaster remembers the master, so that new connections can be made while no sentinel answers: it is the best that is
// known, and a server that is master no more says so.
type lastMaster struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	within  time.Duration // for the sentinels to name the master, and for the master to answer
	word    time.Duration // for one of them to answer
	changed func()        // told that it is another one
	address atomic.Pointer[string]
}

// dialedKey is the context's key of the address that was dialled last on behalf of one connection to the master. To ask a sentinel the
// library has another context. Once one has answered it may dial it with this one, to hear of failovers, but it dials the master in the end.
type dialedKey struct{}

// connect dials a sentinel or the master.
func (l *lastMaster) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if dialed, ok := ctx.Value(dialedKey{}).(*atomic.Pointer[string]); ok {
		dialed.Store(&address)
		return l.dial(ctx, network, address)
	}
	conn, err := l.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &hastyConn{conn, l.word}, nil
}

// hastyConn is a connection to a sentinel that has to answer soon: the library asks one after the other, and one that hangs must
// leave time for the next.
type hastyConn struct {
	net.Conn
	within time.Duration
}

// SetReadDeadline sets the deadline, or an earlier one.
func (c *hastyConn) SetReadDeadline(t time.Time) error {
	if soon := time.Now().Add(c.within); t.After(soon) {
		t = soon
	}
	return c.Conn.SetReadDeadline(t)
}

// DialHook falls back to the last master if no sentinel names one, and marks what fails here as a dial, whoever failed.
func (l *lastMaster) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, named, err := l.find(ctx, next, network, address)
		if err == nil {
			return conn, nil
		}
		if last := l.address.Load(); last != nil && !named && ctx.Err() == nil {
			conn, again := l.dial(ctx, network, *last)
			if again == nil {
				return conn, nil
			}
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
}

// find connects to the master that the sentinels name, and remembers it. It also reports whether they named one.
func (l *lastMaster) find(ctx context.Context, next redis.DialHook, network, address string) (net.Conn, bool, error) {
	dialed := new(atomic.Pointer[string])
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, dialedKey{}, dialed), l.within)
	defer cancel()
	conn, err := next(ctx, network, address)
	master := dialed.Load()
	if err != nil {
		return nil, master != nil, err
	}
	before := l.address.Swap(master)
	if before != nil && *before != *master {
		l.changed()
	}
	return conn, true, nil
}

// ProcessHook changes nothing.
func (*lastMaster) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (*lastMaster) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
