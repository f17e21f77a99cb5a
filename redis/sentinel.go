package redis

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const masterEvery = time.Second // how often the sentinels are asked who is the master

// sentinel is the sentinels that name a master. They are asked at each connect, and once a second whether there is
// another master.
type sentinel struct {
	client  *Client
	master  *Server
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards all below
	clients map[string]*goredis.SentinelClient
	last    string // the master that was named last; empty: none yet
	epoch   int64  // of its failover: each has a higher one
}

func newSentinel(c *Client) *sentinel {
	ctx, cancel := context.WithCancel(context.Background())
	s := &sentinel{client: c, cancel: cancel, clients: map[string]*goredis.SentinelClient{}}
	s.master = c.newServer(c.cfg.Master, s.connect)
	s.running.Go(func() { s.follow(ctx) })
	return s
}

// connect dials the master. While no sentinel names one it is the one that was named last: a server that is a replica
// now replies that.
func (s *sentinel) connect(ctx context.Context) (*conn, error) {
	within, cancel := context.WithTimeout(ctx, s.client.cfg.DialTimeout/2)
	defer cancel()
	address, err := s.find(within)
	if address == "" {
		return nil, dialError(err)
	}
	return s.client.cfg.connect(ctx, address)
}

// follow looks for another master.
func (s *sentinel) follow(ctx context.Context) {
	for pause(ctx, masterEvery) {
		within, cancel := context.WithTimeout(ctx, answerWithin)
		s.client.Guard(func() { _, _ = s.find(within) }) // the next one may answer
		cancel()
	}
}

// pause waits, and reports whether the context still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// named is what one sentinel replied.
type named struct {
	address string // of the master
	epoch   int64  // of the failover that made it the master
	err     error
}

var errFormerMaster = errors.New("no sentinel named the present master")

// find asks all sentinels at once for the master, and takes the first that no later one is known to follow: a
// sentinel that is cut off from the others keeps naming the former master. An earlier one is taken only where all
// sentinels answer, as when they were set up anew. Without any it is the one that was named last.
func (s *sentinel) find(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan named, len(s.client.cfg.Addresses))
	for _, address := range s.client.cfg.Addresses {
		s.running.Go(func() {
			n := named{err: errPanicked}
			s.client.Guard(func() { n = s.ask(ctx, address) })
			answers <- n
		})
	}
	var all error
	var latest named
	for range cap(answers) {
		n := <-answers
		switch {
		case n.err != nil:
			all = errors.Join(all, n.err)
		case s.take(n, false):
			return n.address, nil
		case latest.address == "" || n.epoch > latest.epoch:
			latest = n
		}
	}
	if latest.address != "" && all == nil {
		s.take(latest, true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, errors.Join(all, errFormerMaster)
}

// take takes in a master, unless a later one is known. Connections to the one before are not used again.
func (s *sentinel) take(n named, anyway bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.epoch < s.epoch && !anyway {
		return false
	}
	if s.last != "" && s.last != n.address {
		s.master.epoch.Add(1)
	}
	s.last, s.epoch = n.address, n.epoch
	return true
}

// connection is the one to a sentinel, nil after the end.
func (s *sentinel) connection(address string) *goredis.SentinelClient {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients != nil && s.clients[address] == nil {
		o := s.client.cfg.lone(address)
		o.Username, o.Password, o.CredentialsProvider, o.DB = "", "", s.client.cfg.Sentinels, 0
		s.clients[address] = goredis.NewSentinelClient(o)
	}
	return s.clients[address]
}

// drop lets go of a connection that was of no use: one that fails often would dial only once a second.
func (s *sentinel) drop(address string, client *goredis.SentinelClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients[address] == client {
		delete(s.clients, address)
		client.Close()
	}
}

// ask asks one sentinel.
func (s *sentinel) ask(ctx context.Context, address string) named {
	client := s.connection(address)
	if client == nil {
		return named{err: errClosed}
	}
	reply, err := client.GetMasterAddrByName(ctx, s.client.cfg.Master).Result()
	if err == nil && len(reply) != 2 {
		err = errors.New("a sentinel named no master")
	}
	if err != nil {
		if ctx.Err() == nil { // another sentinel was not faster
			s.drop(address, client)
		}
		return named{err: err}
	}
	n := named{address: net.JoinHostPort(reply[0], reply[1])}
	about, err := client.Master(ctx, s.client.cfg.Master).Result()
	if err == nil { // one that may not be asked counts as of epoch 0
		n.epoch, _ = strconv.ParseInt(about["config-epoch"], 10, 64)
	}
	return n
}

// close ends the connections to the sentinels.
func (s *sentinel) close() {
	s.cancel()
	s.mu.Lock()
	for _, client := range s.clients {
		client.Close()
	}
	s.clients = nil
	s.mu.Unlock()
	s.running.Wait()
}
