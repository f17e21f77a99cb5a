package redis

import (
	"context"
	"sync"
)

// mostTogether is how many commands one pipeline has at most.
const mostTogether = 500

// Command is a cold command about a key.
type Command struct {
	Key  string
	Args []any
}

// Reply is the reply to a Command, as Client.Run returns it.
type Reply struct {
	Value any
	Err   error
}

// RunAll is Run for many commands: those that go to one server go there in pipelines, and all servers work at the same
// time. The commands are independent of each other. It returns a reply for each, in their order.
func (c *Client) RunAll(ctx context.Context, all []Command) []Reply {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, coldWithin)
		defer cancel()
	}
	cold, at := make([]*command, len(all)), map[*Server][]*command{}
	for i := range all {
		cold[i] = (&command{slot: c.Slot(all[i].Key)}).prepare(all[i].Args)
		server := c.Server(all[i].Key)
		at[server] = append(at[server], cold[i])
	}
	var servers sync.WaitGroup
	for server, some := range at {
		servers.Go(func() {
			for len(some) > 0 {
				page := some[:min(len(some), mostTogether)]
				some = some[len(page):]
				server.exchange(ctx, append([]*command{}, page...))
			}
		})
	}
	servers.Wait()
	replies := make([]Reply, len(all))
	for i, one := range cold {
		replies[i] = Reply{one.Val(), one.fault()}
	}
	return replies
}
