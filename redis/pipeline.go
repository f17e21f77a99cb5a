package redis

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

// command is one command on its way to a server and back.
type command struct {
	*goredis.Cmd
	written bool // go-redis has begun to write it
	read    bool // and has read the whole reply

	slot    int // of its keys in a cluster; -1: it has none
	script  *Script
	members []*Pending // the requests that a script's run is for

	loads    bool // its script had to be loaded
	repeated bool // it was sent again after a failure
	moves    int  // how often a cluster sent it on

	reply any
	fault error // why there is no reply
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
	c.read = c.read || err == nil
	c.Cmd.SetErr(err)
}

// prepare makes the command ready to be sent.
func (c *command) prepare(args []any) {
	c.Cmd = goredis.NewCmd(context.Background(), args...)
	c.written, c.read, c.reply, c.fault = false, false, nil, nil
}

// words are those of a script's run. Pointers to strings need no memory of their own.
func (c *command) words(verb, script any) []any {
	keys, size := 0, 4
	for _, p := range c.members {
		keys += len(p.Keys)
		size += len(p.Keys) + len(p.Arguments)
	}
	all := append(make([]any, 0, size), verb, script, keys)
	for _, p := range c.members {
		for i := range p.Keys {
			all = append(all, &p.Keys[i])
		}
	}
	all = append(all, "0")
	for _, p := range c.members {
		for i := range p.Arguments {
			all = append(all, &p.Arguments[i])
		}
	}
	return all
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
		c.prepare(c.words("EVALSHA", c.script.sha))
	}
	return all
}

// part makes a command of its own of each request in a run that did not begin because the user may not touch one of its
// keys. It returns the other commands, too.
func part(all []*command) (others, parted []*command) {
	for _, c := range all {
		if len(c.members) < 2 || !IsReply(c.fault, "NOPERM") {
			others = append(others, c)
			continue
		}
		for i := range c.members {
			one := &command{script: c.script, slot: c.slot, members: c.members[i : i+1]}
			one.prepare(one.words("EVALSHA", c.script.sha))
			parted = append(parted, one)
		}
	}
	return others, parted
}

// send sends commands in one pipeline, each behind an ASKING if that is wanted, and notes what became of each.
func (s *Server) send(ctx context.Context, hot bool, all []*command, asking bool) {
	client := s.cold
	if hot {
		client = s.hot
	}
	if client == nil {
		s.client.cluster.unplaced(ctx, all)
		return
	}
	if len(all) == 1 && !asking {
		all[0].note(client.Process(ctx, all[0]))
		return
	}
	pipe := client.Pipeline()
	for _, c := range all {
		if asking {
			_ = pipe.Process(ctx, goredis.NewCmd(ctx, "ASKING")) // is queued
		}
		_ = pipe.Process(ctx, c) // is queued
	}
	_, err := pipe.Exec(ctx)
	for _, c := range all {
		c.note(err)
	}
}

// note notes what became of the command. all is the error of the whole pipeline.
func (c *command) note(all error) {
	if c.read {
		c.reply = c.Val()
		return
	}
	c.fault = c.Err()
	if c.fault == nil {
		c.fault = all
	}
	switch {
	case errors.Is(c.fault, goredis.Nil):
		c.fault = nil
	case c.fault != nil && !c.written:
		c.fault = &unsentError{c.fault}
	}
}

// route is where a command goes again.
type route struct {
	server *Server
	asking bool
}

// exchange sends commands, and sends those again that did not run, as their replies or the lack of a connection
// prove.
func (s *Server) exchange(ctx context.Context, hot bool, all []*command, asking bool) {
	s.send(ctx, hot, all, asking)
	var again map[route][]*command
	for _, c := range all {
		to, ok := s.again(c, route{s, asking})
		if !ok {
			continue
		}
		if again == nil {
			again = map[route][]*command{}
		}
		again[to] = append(again[to], c)
		words := c.Cmd.Args()
		if c.loads {
			words = c.words("EVAL", c.script.text) // loads it, too
		}
		c.prepare(words)
	}
	for to, some := range again {
		to.server.exchange(ctx, hot, some, to.asking)
	}
}

const (
	mostMoves  = 3                // how often a cluster may send a command on, or let it wait for keys that move
	splitPause = time.Millisecond // for those keys
)

// again is where a command that did not run has a chance: once to load its script, once after a failure, and a few
// times as a cluster replies.
func (s *Server) again(c *command, here route) (to route, ok bool) {
	switch why := Reason(c.fault); {
	case why == "":
		return here, false
	case why == ReasonCluster:
		return s.elsewhere(c, here)
	case c.script != nil && !c.loads && IsReply(c.fault, "NOSCRIPT"):
		c.loads = true
		return here, true
	case c.repeated || !isBrief(c.fault, why):
		return here, false
	case why == ReasonReadonly:
		s.leave()
	}
	c.repeated = true
	return here, true
}

// isBrief reports whether nothing ran because of what may be over at once.
func isBrief(fault error, why string) bool {
	var early *unsentError
	switch why {
	case ReasonLoading, ReasonReadonly:
		return true
	case ReasonDial:
		return errors.Is(fault, syscall.ECONNREFUSED) || errors.Is(fault, syscall.ENOENT)
	}
	return why == ReasonClosed && errors.As(fault, &early)
}

// elsewhere is where a command has to go as a server of a cluster has replied, or now that the slots are known.
func (s *Server) elsewhere(c *command, here route) (to route, ok bool) {
	c.moves++
	cluster := s.client.cluster
	if cluster == nil || c.moves > mostMoves {
		return here, false
	}
	cluster.reload()
	if errors.Is(c.fault, errUnknown) {
		to.server = cluster.server(c.slot)
		return to, to.server.hot != nil
	}
	words := strings.Fields(c.fault.Error())
	switch {
	case words[0] == "TRYAGAIN":
		time.Sleep(splitPause)
		return here, true
	case len(words) == 3 && (words[0] == "MOVED" || words[0] == "ASK"):
		to = route{cluster.member(reachable(bracketed(words[2]), s.address)), words[0] == "ASK"}
		return to, to.server != nil
	}
	return here, false
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
		why := Reason(c.fault)
		if reason == "" {
			reason = why
		}
		switch {
		case why == "":
			shown = breaker.Success
		case c.moves > 0 && why != ReasonCluster: // shows something about another server
		case failures[why], IsReply(c.fault, "CLUSTERDOWN The cluster is down"), why == ReasonError && !IsReply(c.fault, ""):
			return breaker.Failure, reason
		}
	}
	return shown, reason
}

// deliver gives each request its part of the reply.
func (c *command) deliver() {
	items, err := c.integers()
	at := 1
	for _, p := range c.members {
		if err != nil {
			p.Err = err
			continue
		}
		end := at + p.Replies
		if c.script.alone {
			end = len(items)
		}
		p.Reply = append(p.Reply, items[0].(int64))
		for _, item := range items[at:end] {
			p.Reply = append(p.Reply, item.(int64))
		}
		at = end
	}
}

// integers is the reply to a script's run: at least one integer, and as many as its requests need.
func (c *command) integers() ([]any, error) {
	items, isList := c.reply.([]any)
	if !isList {
		items = []any{c.reply}
	}
	want := 1
	for _, p := range c.members {
		want += p.Replies
	}
	for _, item := range items {
		if _, isInteger := item.(int64); !isInteger {
			want = -1
		}
	}
	switch {
	case c.fault != nil:
		return nil, c.fault
	case len(items) == 0 || want < 0 || len(items) != want && !c.script.alone:
		return nil, errReply
	}
	return items, nil
}
