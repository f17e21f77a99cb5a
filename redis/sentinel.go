package redis

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// sentinel is the sentinels that name a master. While none of them answers the master stays the one that was named
// last: a server that is a replica now replies that.
type sentinel struct {
	client *Client
	asked  []*goredis.SentinelClient

	mu     sync.Mutex // guards master
	master named      // the one that was named last
}

// named is what a sentinel replied.
type named struct {
	address string // of the master; empty: none
	epoch   int64  // of the failover that made it the master: each has a higher one
}

func newSentinel(c *Client) *sentinel {
	s := &sentinel{client: c}
	for _, address := range c.cfg.Addresses {
		o := c.cfg.lone(address)
		o.Username, o.Password, o.CredentialsProvider, o.DB = "", "", c.cfg.Sentinels, 0
		s.asked = append(s.asked, goredis.NewSentinelClient(o))
	}
	return s
}

// address is where the master is.
func (s *sentinel) address(ctx context.Context) (string, error) {
	if s.last().address == "" {
		err := s.client.watch.await(ctx)
		if err != nil && s.last().address == "" {
			return "", dialError(err)
		}
	}
	return s.last().address, nil
}

func (s *sentinel) last() named {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.master
}

// look asks all sentinels at once, and takes in each master that no later one is known to follow: a sentinel that is
// cut off from the others keeps naming the former master. An earlier one is taken in only where all sentinels answer,
// as when they were set up anew.
func (s *sentinel) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answers, faults := make([]named, len(s.asked)), make([]error, len(s.asked))
	var asking sync.WaitGroup
	for i, one := range s.asked {
		asking.Go(func() {
			faults[i] = errPanicked
			s.client.Guard(func() { answers[i], faults[i] = s.ask(ctx, one) })
			if faults[i] == nil {
				s.take(answers[i], false)
			}
		})
	}
	asking.Wait()
	err := errors.Join(faults...)
	if err == nil {
		s.take(slices.MaxFunc(answers, func(a, b named) int { return cmp.Compare(a.epoch, b.epoch) }), true)
	}
	if s.last().address != "" {
		return nil
	}
	return err
}

// take takes in a master, unless a later one is known. Connections to the one before are not used again.
func (s *sentinel) take(n named, anyway bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.epoch < s.master.epoch && !anyway {
		return
	}
	if s.master.address != n.address && s.master.address != "" {
		s.client.fixed[0].epoch.Add(1)
	}
	s.master = n
}

// ask asks one sentinel. One that may not be asked for the epoch counts as of epoch 0.
func (s *sentinel) ask(ctx context.Context, one *goredis.SentinelClient) (named, error) {
	reply, err := one.GetMasterAddrByName(ctx, s.client.cfg.Master).Result()
	if err != nil {
		return named{}, err
	}
	if len(reply) != 2 {
		return named{}, errReply
	}
	about, _ := one.Master(ctx, s.client.cfg.Master).Result()
	epoch, _ := strconv.ParseInt(about["config-epoch"], 10, 64)
	return named{net.JoinHostPort(reply[0], reply[1]), epoch}, nil
}

func (s *sentinel) close() {
	for _, one := range s.asked {
		one.Close()
	}
}
