package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

// command is one command on its way to a server and back.
type command struct {
	*goredis.Cmd
	written  bool // go-redis has begun to write it
	answered bool // and has read the whole reply

	slot    int // of its keys in a cluster; -1: it has none
	script  *Script
	members []*Pending // the requests that a script's run is for; none: it is a cold command

	repeated bool // it was sent again after a failure
	moves    int  // how often a cluster sent it on
	asking   bool // to where its slot moves to: behind an ASKING
}

// NoRetry keeps go-redis from sending the command a second time, for it may have run.
func (*command) NoRetry() bool { return true }

// Args are the words of the command. go-redis asks for them when it writes them.
func (c *command) Args() []any {
	c.written = true
	return c.Cmd.Args()
}

// SetErr notes the error of the command. go-redis calls it with nil once it has read the reply. After a lost
// connection it calls it with that error, also for commands whose replies it has read.
func (c *command) SetErr(err error) {
	if !c.answered {
		c.answered = err == nil
		c.Cmd.SetErr(err)
	}
}

// fault is why the reply is missing. A value that is missing is a reply.
func (c *command) fault() error {
	err := c.Err()
	switch {
	case err == nil || errors.Is(err, goredis.Nil):
		return nil
	case c.written:
		return err
	}
	return fmt.Errorf("%w: %w", errUnsent, err)
}

// prepare makes the command ready to be sent.
func (c *command) prepare(words []any) *command {
	c.Cmd, c.written, c.answered = goredis.NewCmd(context.Background(), words...), false, false
	return c
}

// run makes a script's run ready to be sent. Pointers to strings need no memory of their own.
func (c *command) run(verb, script any) *command {
	first := c.members[0]
	words := append(make([]any, 0, 4+len(c.members)*(len(first.Keys)+len(first.Arguments))), verb, script, 0)
	for _, p := range c.members {
		for i := range p.Keys {
			words = append(words, &p.Keys[i])
		}
	}
	words[2] = len(words) - 3 // how many are keys
	words = append(words, "0")
	for _, p := range c.members {
		for i := range p.Arguments {
			words = append(words, &p.Arguments[i])
		}
	}
	return c.prepare(words)
}

// commands makes one command of all requests with the same script, and in a cluster with the same slot. Requests of
// one group run in their order, so none goes into a command in front of its predecessor's.
func commands(batch []*Pending, slotOf func(key string) int) []*command {
	var all []*command
	first := 0
	for _, p := range batch {
		if p.group > 0 {
			first = 0
		}
		slot := slotOf(p.Keys[0])
		for first < len(all) && (p.Script.alone || all[first].script != p.Script || all[first].slot != slot) {
			first++
		}
		if first == len(all) {
			all = append(all, &command{script: p.Script, slot: slot})
		}
		all[first].members = append(all[first].members, p)
	}
	for _, c := range all {
		c.run("EVALSHA", c.script.sha)
	}
	return all
}

// send sends commands in one pipeline.
func (s *Server) send(ctx context.Context, all []*command) {
	client := s.hot
	if all[0].script == nil {
		client = s.cold
	}
	if client == nil {
		s.client.cluster.unplaced(ctx, all)
		return
	}
	if len(all) == 1 && !all[0].asking {
		_ = client.Process(ctx, all[0]) // it has the error
		return
	}
	pipe := client.Pipeline()
	for _, c := range all {
		if c.asking {
			_ = pipe.Process(ctx, goredis.NewCmd(ctx, "ASKING")) // is queued
		}
		_ = pipe.Process(ctx, c) // is queued
	}
	_, _ = pipe.Exec(ctx) // each has its own error
}

// exchange sends commands, and sends those again that did not run, as their replies or the lack of a connection
// prove. It returns what became of them: more commands, where one was parted.
func (s *Server) exchange(ctx context.Context, all []*command) (ended []*command) {
	s.send(ctx, all)
	again := map[*Server][]*command{}
	ended = all[:0]
	for _, c := range all {
		to, next := s.again(c)
		if to == nil {
			ended = append(ended, c)
			continue
		}
		again[to] = append(again[to], next...)
	}
	for to, next := range again {
		ended = append(ended, to.exchange(ctx, next)...)
	}
	return ended
}

const mostMoves = 3 // how often a cluster may send a command on, or let it wait for keys that move

// again is what to send again of a command that did not run, and where: a few times as a cluster replies, each request
// alone where one of them has a key that the user may not touch, and once with the script's text or after what may be
// over at once.
func (s *Server) again(c *command) (to *Server, next []*command) {
	fault := c.fault()
	switch why := Reason(fault); {
	case why == ReasonCluster:
		to = s.elsewhere(c, fault)
		if to != nil {
			c.prepare(c.Args())
		}
		return to, []*command{c}
	case len(c.members) > 1 && IsReply(fault, "NOPERM"):
		for i := range c.members {
			next = append(next, commands(c.members[i:i+1], s.client.Slot)...)
		}
		return s, next
	case !c.repeated && s.repeat(c, fault, why):
		c.repeated = true
		return s, []*command{c}
	}
	return nil, nil
}

// repeat makes a command ready to be sent once more, if nothing ran because of what may be over at once.
func (s *Server) repeat(c *command, fault error, why string) bool {
	early := errors.Is(fault, errUnsent) && !isTimeout(fault)
	switch {
	case c.script != nil && IsReply(fault, "NOSCRIPT"):
		c.run("EVAL", c.script.text) // loads it, too
		return true
	case why == ReasonReadonly:
		s.epoch.Add(1) // another server may be the master
	case why == ReasonLoading, early && (why == ReasonDial || why == ReasonClosed):
	default:
		return false
	}
	c.prepare(c.Args())
	return true
}

// elsewhere is where a command has to go as a server of a cluster has replied, or now that the slots are known; nil for
// nowhere.
func (s *Server) elsewhere(c *command, fault error) *Server {
	c.moves++
	cluster := s.client.cluster
	if cluster == nil || c.moves > mostMoves {
		return nil
	}
	s.client.watch.want()
	words := strings.Fields(fault.Error())
	switch {
	case errors.Is(fault, errUnknown):
		return cluster.server(c.slot)
	case words[0] == "TRYAGAIN":
		time.Sleep(time.Millisecond)
		return s
	case len(words) == 3 && (words[0] == "MOVED" || words[0] == "ASK"):
		c.asking = words[0] == "ASK"
		return cluster.member(reachable(words[2], s.address))
	}
	return nil
}

// failures are the reasons that show that a server cannot work. What an operator has to mend, as a wrong password, is
// none.
var failures = map[string]bool{
	ReasonTimeout: true, ReasonDial: true, ReasonClosed: true, ReasonLoading: true, ReasonReadonly: true,
	ReasonClients: true, ReasonOOM: true, ReasonMisconf: true, ReasonBusy: true,
}

// outcome is what commands show the breaker about the server, and the reason of the first that failed.
func outcome(all []*command) (shown breaker.Outcome, reason string) {
	for _, c := range all {
		fault := c.fault()
		why := Reason(fault)
		if reason == "" {
			reason = why
		}
		switch {
		case why == "":
			shown = breaker.Success
		case c.moves > 0 && why != ReasonCluster: // shows something about another server
		case failures[why], IsReply(fault, "CLUSTERDOWN The cluster is down"), why == ReasonError &&
			!IsReply(fault, ""):
			return breaker.Failure, reason
		}
	}
	return shown, reason
}

// deliver gives each request its part of the reply.
func (c *command) deliver() {
	want := 1
	for _, p := range c.members {
		want += p.Replies
	}
	reply, err := c.Int64Slice()
	if err != nil || len(reply) != want {
		err = cmp.Or(c.fault(), errReply)
	}
	at := 1
	for _, p := range c.members {
		p.Err = err
		if err == nil {
			p.Reply = append(append(p.Reply, reply[0]), reply[at:at+p.Replies]...)
			at += p.Replies
		}
	}
}
