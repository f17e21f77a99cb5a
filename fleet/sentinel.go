package fleet

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	masterEvery   = time.Second      // how often the sentinels are asked who is the master
	sentinelEvery = 30 * time.Second // how often they are asked for each other
)

// sentinel is the master that sentinels name. They are asked with each new connection, and once a second for another master.
type sentinel struct {
	solo
	servers *Servers
	dial    func(ctx context.Context, address string) (net.Conn, error)
	master  atomic.Pointer[string] // the last one that was named; nil: none yet
	former  atomic.Bool            // there may be links to the one before
	done    chan struct{}

	mu      sync.Mutex // guards all below
	clients map[string]*redis.SentinelClient
	spread  time.Time // when they were last asked for each other
	epoch   int64     // of the master that was named last: each failover has a higher one
}

func newSentinel(f *Fleet) *sentinel {
	s := &sentinel{servers: &f.servers, dial: f.servers.dialer(), done: make(chan struct{}), clients: map[string]*redis.SentinelClient{}}
	for _, address := range f.servers.Addresses {
		s.addLocked(address)
	}
	s.solo.Node = f.node(f.prefix + f.servers.Master)
	s.start(s.connect)
	go s.follow(s.solo.ctx)
	return s
}

// addLocked makes the client of a sentinel.
func (s *sentinel) addLocked(address string) {
	if s.clients[address] != nil {
		return
	}
	o := s.servers.options(address)
	o.Username, o.Password, o.CredentialsProvider = "", "", nil
	if s.servers.Sentinels != nil {
		o.Username, o.Password = s.servers.Sentinels()
	}
	s.clients[address] = redis.NewSentinelClient(o)
}

// connect dials the master. While no sentinel names one it is the last that was named; one that is master no more says so.
func (s *sentinel) connect(ctx context.Context) (net.Conn, error) {
	within, cancel := context.WithTimeout(ctx, s.servers.DialTimeout/2)
	defer cancel()
	address, err := s.ask(within)
	if err == nil {
		s.named(address)
		return s.dial(ctx, address)
	}
	if last := s.master.Load(); last != nil && ctx.Err() == nil {
		return s.dial(ctx, *last)
	}
	return nil, dialError("tcp", err)
}

// named takes in who is the master. Links to another one are left, at once or when the sentinels are asked the next time.
func (s *sentinel) named(address string) {
	before := s.master.Swap(&address)
	if before != nil && *before != address {
		s.succeed()
		s.former.Store(true)
	}
	if s.former.Swap(false) && !s.leave() {
		s.former.Store(true)
	}
}

// follow looks for another master.
func (s *sentinel) follow(ctx context.Context) {
	defer close(s.done)
	ticker := time.NewTicker(masterEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		within, cancel := context.WithTimeout(ctx, s.servers.DialTimeout)
		address, err := s.ask(within)
		cancel()
		if err == nil {
			s.named(address)
		}
	}
}

// answer is what one sentinel said.
type answer struct {
	sentinel string // its address
	client   *redis.SentinelClient
	address  string // of the master
	epoch    int64  // of the failover that made it the master
	err      error
}

// ask asks all sentinels at once, and takes the first master that is named, unless a later one is known: a sentinel that is cut off from the others goes on
// to name the one before. An earlier one is taken only where all sentinels answer, as when they were set up anew.
func (s *sentinel) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	answers := make(chan answer, len(s.clients))
	for address, client := range s.clients {
		go func() {
			a := answer{err: errPanicked}
			guard(s.onPanic, func() { a = s.askOne(ctx, client) })
			a.sentinel, a.client = address, client
			answers <- a
		}()
	}
	s.mu.Unlock()
	var all error
	var latest answer
	for range cap(answers) {
		a := <-answers
		switch {
		case a.err != nil:
			s.refresh(a)
			all = errors.Join(all, a.err)
		case s.holds(a.epoch):
			s.discover(a)
			return a.address, nil
		case latest.address == "" || a.epoch > latest.epoch:
			latest = a
		}
	}
	if latest.address == "" || all != nil {
		return "", errors.Join(all, errFormer)
	}
	s.mu.Lock()
	s.epoch = latest.epoch
	s.mu.Unlock()
	return latest.address, nil
}

var errFormer = errors.New("no sentinel named the present master")

// holds reports whether a master of that epoch is not followed by another one that is known.
func (s *sentinel) holds(epoch int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch < s.epoch {
		return false
	}
	s.epoch = epoch
	return true
}

// refresh makes another client of a sentinel that could not be asked: one that fails often would wait before it dials again.
func (s *sentinel) refresh(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients[a.sentinel] != a.client || s.solo.ctx.Err() != nil {
		return
	}
	_ = a.client.Close() // it was of no use
	delete(s.clients, a.sentinel)
	s.addLocked(a.sentinel)
}

func (s *sentinel) askOne(ctx context.Context, client *redis.SentinelClient) answer {
	reply, err := client.GetMasterAddrByName(ctx, s.servers.Master).Result()
	if err == nil && len(reply) != 2 {
		err = errors.New("a sentinel named no master")
	}
	if err != nil {
		return answer{err: err}
	}
	a := answer{address: net.JoinHostPort(reply[0], reply[1])}
	master, err := client.Master(ctx, s.servers.Master).Result()
	if err == nil { // one that may not be asked counts as of epoch 0
		a.epoch, _ = strconv.ParseInt(master["config-epoch"], 10, 64)
	}
	return a
}

// discover learns of the other sentinels from one that answers, now and then.
func (s *sentinel) discover(a answer) {
	s.mu.Lock()
	soon := time.Since(s.spread) < sentinelEvery
	if !soon {
		s.spread = time.Now()
		s.solo.running.Add(1)
	}
	s.mu.Unlock()
	if soon {
		return
	}
	go func() {
		defer s.solo.running.Done()
		ctx, cancel := context.WithTimeout(s.solo.ctx, s.servers.AnswerTimeout)
		defer cancel()
		guard(s.onPanic, func() {
			others, err := a.client.Sentinels(ctx, s.servers.Master).Result()
			if err == nil {
				s.learn(a.sentinel, others)
			}
		})
	}()
}

// learn adds the sentinels that another one knows, and forgets those that were not configured and are known no more. The one that was
// asked does not name itself.
func (s *sentinel) learn(asked string, others []map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := append(slices.Clone(s.servers.Addresses), asked)
	for _, o := range others {
		if o["ip"] != "" && o["port"] != "" {
			known = append(known, net.JoinHostPort(o["ip"], o["port"]))
		}
	}
	for _, address := range known {
		s.addLocked(address)
	}
	for address, client := range s.clients {
		if !slices.Contains(known, address) {
			_ = client.Close() // what it was asked is over
			delete(s.clients, address)
		}
	}
}

// Close ends the connections.
func (s *sentinel) Close() {
	s.cancel()
	<-s.done
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, client := range s.clients {
		_ = client.Close() // what it was asked is over
	}
}
