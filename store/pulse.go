package store

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
)

// pingWithin is how long Ping waits: longer than a decision would, because a busy server is not a lost one.
const pingWithin = 100 * time.Millisecond

// pulse keeps pings to one at a time: a caller that asks for many must not take the connections from the decisions.
type pulse struct {
	asking sync.Mutex // held while a ping is under way
	mu     sync.Mutex // guards last
	last   string     // what the last ping said
}

// Ping asks the server for a sign of life, and returns why there was none, as one of the reasons, or nothing. While
// another ping is under way it returns what the one before it said.
func (r *Redis) Ping(context.Context) string {
	p := &r.pulse
	if !p.asking.TryLock() {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.last
	}
	defer p.asking.Unlock()
	why := r.ping()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = why
	return why
}

// ping asks all servers at once. Where there are several, those that do not answer are named.
func (r *Redis) ping() string {
	nodes := r.nodes()
	reasons := make([]string, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { reasons[i] = ping(n) })
	}
	all.Wait()
	var told []string
	for i, n := range nodes {
		switch {
		case reasons[i] == "":
		case len(nodes) == 1:
			return reasons[i]
		default:
			told = append(told, n.Name()+" "+reasons[i])
		}
	}
	return strings.Join(told, ", ")
}

func ping(n *fleet.Node) string {
	_, err := n.Ask(pingWithin, "", "PING")
	if err == nil {
		return ""
	}
	return fleet.Reason(err)
}
