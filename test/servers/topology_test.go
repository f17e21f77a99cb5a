package servers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestSentinelsReplaceADeadMaster(t *testing.T) {
	t.Parallel() // it mostly waits
	s := StartSentinels(t)
	old := s.Current(t)
	if old != s.Servers[0] || len(s.Addrs()) != 3 {
		t.Fatalf("the master of %v is %s, want %s with 3 sentinels", s.Addrs(), old.Addr, s.Servers[0].Addr)
	}
	wantReply(t, old, "OK", "SET", "kept", "yes")
	wantReply(t, old, int64(2), "WAIT", "2", "5000")
	old.Kill(t)
	fresh := s.AwaitFailover(t, old)
	wantReply(t, fresh, "yes", "GET", "kept")
	old.Start(t)
	s.AwaitReplica(t, old)
	wantReply(t, old, "yes", "GET", "kept")
}

func TestASentinelRemembers(t *testing.T) {
	t.Parallel() // it mostly waits
	s := StartSentinels(t)
	for _, w := range s.Watch {
		w.Kill(t)
	}
	wantReply(t, s.Servers[0], "PONG", "PING")
	for _, w := range s.Watch {
		w.Start(t)
	}
	if got := s.MasterAddr(t); got != s.Servers[0].Addr {
		t.Fatalf("the sentinels name %s, want %s", got, s.Servers[0].Addr)
	}
	Await(t, "the sentinels to know everybody again", s.acquainted)
}

// TestAWokenSentinelWorksAgain: of two sentinels, both are needed to depose a master.
func TestAWokenSentinelWorksAgain(t *testing.T) {
	t.Parallel()                     // it mostly waits
	const tiltFrom = 2 * time.Second // a sentinel that was stopped for that long
	s := StartSentinels(t)
	woken, old := s.Watch[1], s.Current(t)
	woken.Hang(t)
	<-time.After(tiltFrom + 500*time.Millisecond)
	err := woken.Signal(syscall.SIGCONT)
	if err != nil {
		t.Fatalf("wake the sentinel: %v", err)
	}
	s.Watch[2].Kill(t)
	old.Kill(t)
	s.AwaitFailover(t, old)
}

func TestSentinelsDeposeALivingMasterBehindPasswords(t *testing.T) {
	t.Parallel() // it mostly waits
	s := StartGuardedSentinels(t, "who goes there", "--requirepass", "sesame")
	for _, r := range slices.Concat(s.Servers, s.Watch) {
		stranger := &Redis{Socket: r.Socket}
		_, err := stranger.tryDo("INFO")
		if err == nil || !strings.Contains(err.Error(), "NOAUTH") {
			t.Fatalf("%s lets strangers in: %v", r.Addr, err)
		}
	}
	old := s.Current(t)
	s.Failover(t)
	fresh := s.AwaitFailover(t, old)
	wantReply(t, fresh, "OK", "SET", "new", "yes")
	s.AwaitReplica(t, old)
	wantReply(t, old, "yes", "GET", "new")
}

func TestClusterReplacesADeadMaster(t *testing.T) {
	t.Parallel() // it mostly waits
	c := StartCluster(t)
	slot := c.SlotOf(t, "kept")
	old := c.MasterOf(t, slot)
	replica := c.ReplicaOf(t, old)
	wantReply(t, old, "OK", "SET", "kept", "yes")
	wantReply(t, old, int64(1), "WAIT", "1", "5000")
	old.Kill(t)
	if got := c.MasterOf(t, slot); got != replica {
		t.Fatalf("slot %d went to %s, want the replica %s", slot, got.Addr, replica.Addr)
	}
	wantReply(t, replica, "yes", "GET", "kept")
	c.Settle(t)
	old.Start(t)
	if got := c.MasterOf(t, slot); got != replica {
		t.Fatalf("slot %d is with %s after the return of its former master, want %s", slot, got.Addr, replica.Addr)
	}
	if got := c.ReplicaOf(t, replica); got != old {
		t.Fatalf("the replica of %s is %s, want the former master %s", replica.Addr, got.Addr, old.Addr)
	}
	c.Settle(t)
}

// TestClusterMovesSlotsUnderLoad counts up keys of the slots that move: every count that was acknowledged is kept.
func TestClusterMovesSlotsUnderLoad(t *testing.T) {
	t.Parallel() // it mostly waits
	c := StartCluster(t, "--requirepass", "sesame")
	masters := c.Masters(t)
	before := c.Slots(t, masters[0])
	load := startCounters(t, c, before[:1000])
	c.MoveSlots(t, masters[0], masters[1], 1000)
	load.stop(t)
	if got := c.Slots(t, masters[0]); !slices.Equal(got, before[1000:]) {
		t.Errorf("%d slots are left of %d, want all but the first 1000", len(got), len(before))
	}
	for _, slot := range []int{before[0], before[999]} {
		if got := c.MasterOf(t, slot); got != masters[1] {
			t.Errorf("slot %d is with %s, want %s", slot, got.Addr, masters[1].Addr)
		}
	}
	c.Settle(t)
}

// counters count up keys of a cluster, a few at a time.
type counters struct {
	client *redis.ClusterClient
	ended  chan struct{}
	errs   chan error
}

const counterKeys, counterCrew = 200, 4

func startCounters(t *testing.T, c *RedisCluster, slots []int) *counters {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Password: c.Nodes[0].password()})
	t.Cleanup(func() { client.Close() })
	var keys []string
	for i := 0; len(keys) < counterKeys; i++ {
		key := fmt.Sprint("key", i)
		if slices.Contains(slots, c.SlotOf(t, key)) {
			keys = append(keys, key)
		}
	}
	l := &counters{client: client, ended: make(chan struct{}), errs: make(chan error, counterCrew)}
	for part := range slices.Chunk(keys, counterKeys/counterCrew) {
		go func() { l.errs <- l.count(part) }()
	}
	return l
}

// count counts up each of the keys, which no other test does, until the end.
func (l *counters) count(keys []string) error {
	for want := int64(1); ; want++ {
		for _, key := range keys {
			got, err := l.client.Incr(context.Background(), key).Result()
			if err != nil {
				return fmt.Errorf("count %s: %w", key, err)
			}
			if got != want {
				return fmt.Errorf("%s came to %d, want %d", key, got, want)
			}
		}
		select {
		case <-l.ended:
			return nil
		default:
		}
	}
}

func (l *counters) stop(t *testing.T) {
	t.Helper()
	close(l.ended)
	for range counterCrew {
		err := <-l.errs
		if err != nil {
			t.Error(err)
		}
	}
}

// wantReply fails the test unless the server answers a command with that reply.
func wantReply(t *testing.T, r *Redis, want any, command ...string) {
	t.Helper()
	got := r.Do(t, command...)
	if got != want {
		t.Fatalf("%s on %s: %v, want %v", strings.Join(command, " "), r.Addr, got, want)
	}
}
