package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// copied is a store whose servers have replicas.
type copied struct {
	*Redis
	masters, replicas []*servers.Redis
}

// openCopied opens a store that asks replicas.
func openCopied(t *testing.T, s redis.Servers, masters, replicas []*servers.Redis) *copied {
	t.Helper()
	return &copied{open(t, RedisConfig{Main: client(redis.Config{Servers: s, Replicas: true})}), masters, replicas}
}

func copiedSentinels(t *testing.T) *copied {
	s := servers.StartSentinels(t)
	at := redis.Servers{Kind: redis.Sentinel, Addresses: s.Addrs(), Master: s.Master}
	return openCopied(t, at, s.Servers[:1], s.Servers[1:])
}

func copiedCluster(t *testing.T) *copied {
	c := servers.StartCluster(t)
	return openCopied(t, redis.Servers{Kind: redis.Cluster, Addresses: c.Addrs()}, c.Nodes[:3], c.Nodes[3:])
}

// lately is what is left, as a replica may have it.
func (c *copied) lately(t *testing.T, of limit.Charge) limit.Decision {
	t.Helper()
	of.Op = limit.Peek
	r := requestOf(of)
	r.MayLag = true
	c.Peek(t.Context(), r)
	return r.Decisions[0]
}

// wantLately waits until a replica, or else a master, has this left.
func (c *copied) wantLately(t *testing.T, of limit.Charge, left int64, byReplica bool) {
	t.Helper()
	servers.Await(t, "what is left", func() error {
		before := c.Stats().Calls.Copied
		d := c.lately(t, of)
		if got := c.Stats().Calls.Copied > before; d.Remaining != left || got != byReplica {
			return fmt.Errorf("%d left (%q), by a replica %t, want %d, %t", d.Remaining, d.Reason, got, left, byReplica)
		}
		return nil
	})
}

// scriptsRun is how often servers ran scripts by a command.
func scriptsRun(t *testing.T, of []*servers.Redis, command string) (all int) {
	t.Helper()
	for _, server := range of {
		stats := fmt.Sprint(server.Do(t, "INFO", "commandstats"))
		_, after, _ := strings.Cut(stats, "cmdstat_"+command+":calls=")
		n := 0
		_, _ = fmt.Sscanf(after, "%d,", &n) // 0 where the command never ran
		all += n
	}
	return all
}

// TestQuestionsThatReplicasAnswer: a replica answers what may be a little old, and nothing else.
func TestQuestionsThatReplicasAnswer(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *copied{
		"sentinels": copiedSentinels, "cluster": copiedCluster,
	} {
		t.Run(name, func(t *testing.T) {
			c, one := start(t), charge(t, "one", bucket(10, year), 1)
			awaitAllowed(t, c.Redis, one)
			c.wantLately(t, one, 9, true)
			asked, decided := scriptsRun(t, c.replicas, "eval_ro"), scriptsRun(t, c.masters, "evalsha")
			for range 5 {
				want(t, "a question", c.lately(t, one), limit.Allowed, 0, 9)
			}
			if got := scriptsRun(t, c.replicas, "eval_ro") - asked; got != 5 {
				t.Errorf("replicas answered %d of 5 questions", got)
			}
			if got := scriptsRun(t, c.masters, "evalsha") - decided; got != 0 {
				t.Errorf("masters ran %d scripts for questions, want none", got)
			}
			want(t, "a decision", spend(c.Redis, one)[0], limit.Allowed, 1, 8)
			wantLeft(t, c.Redis, one, 8)
			if got := scriptsRun(t, c.masters, "evalsha") - decided; got != 2 {
				t.Errorf("masters ran %d scripts, want 2: a decision, and a question that may not lag", got)
			}
			if n := scriptsRun(t, c.replicas, "eval") + scriptsRun(t, c.replicas, "evalsha"); n > 0 ||
				scriptsRun(t, c.replicas, "eval_ro") != asked+5 || scriptsRun(t, c.masters, "eval_ro") > 0 {
				t.Error("a replica ran a script for a decision, or a master one for a replica")
			}
		})
	}
}

// TestQuestionsWithoutAReplica: what replicas cannot answer as it is, the master does.
func TestQuestionsWithoutAReplica(t *testing.T) {
	c, one := copiedSentinels(t), charge(t, "one", bucket(10, year), 1)
	awaitAllowed(t, c.Redis, one)
	c.wantLately(t, one, 9, true)

	foreign := charge(t, "foreign", bucket(10, year), 1)
	c.masters[0].Do(t, "SET", foreign.Key, "not of a limit")
	c.wantLately(t, foreign, 10, true)
	if n := c.Stats().Calls.Healed; n != 1 {
		t.Errorf("%d counters of another form were deleted, want 1", n)
	}

	for _, replica := range c.replicas {
		replica.Do(t, "REPLICAOF", "127.0.0.1", "1")
	}
	want(t, "a decision", spend(c.Redis, one)[0], limit.Allowed, 1, 8)
	want(t, "a question, while replicas have no link", c.lately(t, one), limit.Allowed, 0, 8)

	for _, replica := range c.replicas {
		replica.Kill(t)
	}
	want(t, "a question, while replicas are away", c.lately(t, one), limit.Allowed, 0, 8)
	c.wantLately(t, one, 8, false)
}
