package redis

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// sentinel is the sentinels that name a master.
type sentinel struct {
	client *Client
	asked  []*goredis.SentinelClient
	master atomic.Pointer[named] // as far as known
}

// named is a master as a sentinel named it.
type named struct {
	address string
	epoch   int64    // of the failover that made it the master: each has a higher one
	copies  []string // addresses of its replicas, where they are asked for
}

func newSentinel(c *Client) *sentinel {
	s := &sentinel{client: c}
	for _, address := range c.cfg.Addresses {
		o := c.cfg.options(address, answerWithin, 1)
		o.Username, o.Password, o.CredentialsProvider, o.DB = "", "", c.cfg.Sentinels, 0
		s.asked = append(s.asked, goredis.NewSentinelClient(o))
	}
	return s
}

// address is where the master is. While no sentinel answers it is the one that was named last: a server that is a
// replica now replies that.
func (s *sentinel) address(ctx context.Context) (string, error) {
	if s.master.Load() == nil {
		err := s.client.watch.await(ctx)
		if err != nil {
			return "", dialError(err)
		}
	}
	return s.master.Load().address, nil
}

// look asks all sentinels at once, and takes in the latest master: a sentinel that is cut off from the others keeps
// naming the former one. One that is earlier than the present one is taken in only where all sentinels answer, as when
// they were set up anew.
func (s *sentinel) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answers, faults := make([]*named, len(s.asked)), make([]error, len(s.asked))
	var asking sync.WaitGroup
	for i, one := range s.asked {
		asking.Go(func() {
			faults[i] = errPanicked
			s.client.Guard(func() { answers[i], faults[i] = s.ask(ctx, one) })
		})
	}
	asking.Wait()
	fault, before := errors.Join(faults...), s.master.Load()
	latest := before
	if fault == nil {
		latest = nil
	}
	for _, n := range answers {
		if n != nil && (latest == nil || n.epoch >= latest.epoch) {
			latest = n
		}
	}
	if latest == nil {
		return fault
	}
	s.master.Store(latest)
	s.client.fixed[0].copiedTo(latest.copies)
	if before != nil && before.address != latest.address {
		s.client.fixed[0].epoch.Add(1) // connections to the former master are not used again
	}
	return nil
}

// ask asks one sentinel. One that may not be asked for the epoch counts as of epoch 0.
func (s *sentinel) ask(ctx context.Context, one *goredis.SentinelClient) (*named, error) {
	reply, err := one.GetMasterAddrByName(ctx, s.client.cfg.Master).Result()
	if errors.Is(err, goredis.Nil) {
		return nil, s.noMaster(ctx, one)
	}
	if err != nil || len(reply) != 2 {
		return nil, cmp.Or(err, errReply)
	}
	about, _ := one.Master(ctx, s.client.cfg.Master).Result()
	epoch, _ := strconv.ParseInt(about["config-epoch"], 10, 64)
	return &named{net.JoinHostPort(reply[0], reply[1]), epoch, s.copies(ctx, one)}, nil
}

// copies are the addresses of the replicas that a sentinel finds well.
func (s *sentinel) copies(ctx context.Context, one *goredis.SentinelClient) (all []string) {
	if !s.client.AsksReplicas() {
		return nil
	}
	known, _ := one.Replicas(ctx, s.client.cfg.Master).Result() // without them the master is asked
	for _, about := range known {
		if about["flags"] == "slave" && about["master-link-status"] == "ok" {
			all = append(all, net.JoinHostPort(about["ip"], about["port"]))
		}
	}
	return all
}
