package fleet

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// Two scripts that answer what a call asked, each in its own way, so that a test sees which of them answered. A call with the argument
// "alone" is none for the batch.
const aloneText = `return 'alone ' .. KEYS[1] .. ' ' .. ARGV[1]`

var testBatch = &Batch{
	Text: `local reply, key = 'batch ', 0
for i = 2, #ARGV do
  for _ = 1, string.byte(ARGV[1], i - 1) do
    key = key + 1
    reply = reply .. (ARGV[i] ~= 'alone' and KEYS[key] .. ' ' .. ARGV[i] or '') .. ';'
  end
end
return reply`,
	Head: len("batch "),
	Cut: func(reply []byte, _ int) (int, bool, error) {
		end := bytes.IndexByte(reply, ';')
		if end < 0 {
			return 0, false, errMixed
		}
		return end + 1, end == 0, nil
	},
}

func init() { testBatch.Name = fmt.Sprintf("%x", sha1.Sum([]byte(testBatch.Text))) }

// errMixed is that a call got the reply to another one.
var errMixed = errors.New("the reply is not that to the call")

// ask makes a call of either script and checks that the answer is its own. It reports whether the batch gave it.
func (c *Call) ask(n *Node, key, argument string) (batched bool, err error) {
	b := AppendWord(AppendWord(AppendWord(AppendCommand(c.Wire[:0], 5), "EVAL"), aloneText), "1")
	keysAt := len(b)
	b = AppendWord(b, key)
	argumentAt := len(b)
	c.Wire, c.Key = AppendWord(b, argument), key
	c.Join(testBatch, 1, keysAt, argumentAt)
	err = n.Send(c, time.Minute)
	if err != nil {
		return false, err
	}
	how, what, _ := strings.Cut(string(c.Reply.Data), " ")
	if want := key + " " + argument; strings.TrimSuffix(what, ";") != want {
		return false, fmt.Errorf("%w: %q, want one about %q", errMixed, c.Reply.Data, want)
	}
	return how == "batch", nil
}

// crowd lets many callers make calls at once until the condition holds, and returns how many calls a batch answered.
func crowd(t *testing.T, n *Node, enough func(batched int64) bool, call func(c *Call, i, j int) (bool, error)) int64 {
	t.Helper()
	var batched, stop atomic.Int64
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			c := new(Call)
			for j := 0; stop.Load() == 0; j++ {
				together, err := call(c, i, j)
				if err != nil {
					t.Errorf("caller %d, call %d: %v", i, j, err)
					stop.Store(1)
				}
				if together {
					batched.Add(1)
				}
			}
		})
	}
	await(t, "enough calls", func() bool { return stop.Load() > 0 || enough(batched.Load()) })
	stop.Store(1)
	all.Wait()
	return batched.Load()
}

// TestCallsThatWaitAreMadeInBatches: each caller gets the reply to its own call, whether it was made in a batch or alone, also
// while the server forgets its scripts again and again.
func TestCallsThatWaitAreMadeInBatches(t *testing.T) {
	server := servers.StartRedis(t)
	_, n := open(t, Config{Servers: at(server.Addr), Bounds: Bounds{Silence: time.Minute}})
	var alone atomic.Int64
	rounds := 0
	crowd(t, n, func(batched int64) bool {
		server.Do(t, "SCRIPT", "FLUSH")
		rounds++
		return batched > 2000 && alone.Load() > 200 && rounds > 5
	}, func(c *Call, i, j int) (bool, error) {
		argument := fmt.Sprint(i, "-", j)
		switch j % 5 {
		case 0:
			argument = "alone"
		case 1, 2:
			argument = "that of many"
		}
		together, err := c.ask(n, fmt.Sprint("key", i), argument)
		if argument == "alone" {
			alone.Add(1)
			if together {
				err = fmt.Errorf("a call that must be made alone was made in a batch")
			}
		}
		return together, err
	})
	for _, s := range n.streams {
		owedNothing(t, s.link.Load())
	}
}

// TestOneSlotAtATimeIsKept: a server that wants the keys of a command in one slot gets each call alone.
func TestOneSlotAtATimeIsKept(t *testing.T) {
	cluster := servers.StartCluster(t)
	node := cluster.Nodes[0]
	var keys []string
	for i := 0; len(keys) < 32; i++ {
		if key := fmt.Sprint("key", i); cluster.SlotOf(t, key) < servers.ClusterSlots/3 {
			keys = append(keys, key)
		}
	}
	_, n := open(t, Config{Servers: at(node.Addr), Bounds: Bounds{Silence: time.Minute}})
	crowd(t, n, func(int64) bool { return n.apart.Load() }, func(c *Call, i, j int) (bool, error) {
		return c.ask(n, keys[i], fmt.Sprint(i, "-", j))
	})
	var calls atomic.Int64
	batched := crowd(t, n, func(int64) bool { return calls.Load() > 2000 }, func(c *Call, i, j int) (bool, error) {
		calls.Add(1)
		return c.ask(n, keys[i], fmt.Sprint(i, "-", j))
	})
	if batched > 0 {
		t.Errorf("%d calls were made in a batch after the server refused one", batched)
	}
}

// TestAForbiddenKeyIsRefusedAlone: what the server refuses because of one call of a batch is not held against the others.
func TestAForbiddenKeyIsRefusedAlone(t *testing.T) {
	server := servers.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "limited", "on", ">secret", "~key*", "+@all")
	s := at(server.Addr)
	s.Username, s.Password = "limited", "secret"
	_, n := open(t, Config{Servers: s, Bounds: Bounds{Silence: time.Minute}})
	var refused atomic.Int64
	crowd(t, n, func(batched int64) bool { return batched > 200 && refused.Load() > 200 }, func(c *Call, i, j int) (bool, error) {
		key := fmt.Sprint("key", i)
		if i%8 == 0 {
			key = "other"
		}
		together, err := c.ask(n, key, fmt.Sprint(i, "-", j))
		if key == "other" && IsReply(err, "NOPERM") {
			refused.Add(1)
			err = nil
		}
		return together, err
	})
}

// TestABatchThatIsLostEndsEachCall: the calls of a batch whose connection breaks end, and each may have run.
func TestABatchThatIsLostEndsEachCall(t *testing.T) {
	server := servers.StartRedis(t)
	proxy := servers.StartProxy(t, server.Addr)
	f, n := open(t, Config{Servers: at(proxy.Addr), Bounds: Bounds{Silence: time.Minute}})
	var lost atomic.Int64
	crowd(t, n, func(int64) bool {
		proxy.Sever()
		return lost.Load() > 500
	}, func(c *Call, i, j int) (bool, error) {
		together, err := c.ask(n, fmt.Sprint("key", i), fmt.Sprint(i, "-", j))
		if err != nil && !errors.Is(err, errMixed) {
			lost.Add(1)
			err = nil
		}
		return together, err
	})
	await(t, "no call under way", func() bool { return f.Stats().InFlight == 0 })
}
