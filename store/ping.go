package store

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

// pingWithin is how long Ping waits: longer than a decision would, because a busy server is not a lost one.
const pingWithin = 100 * time.Millisecond

// pinging keeps pings to one at a time: a caller that asks for many must not take the connections from the decisions.
type pinging struct {
	asking sync.Mutex // held while a ping is under way
	mu     sync.Mutex // guards last
	last   string     // reasons of the last ping
}

// Ping asks all servers for a sign of life, and returns why there was none, as one of the reasons, or nothing. While another ping is under way
// it returns what the one before it returned. Where there are several servers, those that do not answer are named.
func (r *Redis) Ping(ctx context.Context) string {
	p := &r.pinging
	if !p.asking.TryLock() {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.last
	}
	defer p.asking.Unlock()
	reasons := r.ping(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = reasons
	return reasons
}

func (r *Redis) ping(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	servers := r.servers()
	reasons := make([]string, len(servers))
	var all sync.WaitGroup
	for i, server := range servers {
		all.Go(func() { reasons[i] = redis.Reason(server.Ping(ctx)) })
	}
	all.Wait()
	var named []string
	for i, server := range servers {
		switch {
		case reasons[i] == "":
		case len(servers) == 1:
			return reasons[i]
		default:
			named = append(named, server.Name()+" "+reasons[i])
		}
	}
	return strings.Join(named, ", ")
}
