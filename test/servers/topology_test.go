package servers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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

func TestSentinelsDeposeALivingMasterBehindPasswords(t *testing.T) {
	t.Parallel() // it mostly waits
	s := StartGuardedSentinels(t, "who goes there", "--requirepass", "sesame")
	for _, r := range slices.Concat(s.Servers, s.Watch) {
		stranger := &Redis{Socket: r.Socket}
		_, err := stranger.ask("INFO")
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
	if got := c.ReplicaOf(t, replica); got != old {
		t.Fatalf("the replica of %s is %s, want the former master %s", replica.Addr, got.Addr, old.Addr)
	}
	c.Settle(t)
}

// TestClusterMovesSlotsUnderLoad counts up keys all the while: every count that was acknowledged is there afterwards.
func TestClusterMovesSlotsUnderLoad(t *testing.T) {
	t.Parallel() // it mostly waits
	c := StartCluster(t, "--requirepass", "sesame")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Password: "sesame"})
	defer client.Close()
	const keys = 500
	stop, counted := make(chan struct{}), make(chan error)
	go func() { counted <- countUp(client, keys, stop) }()
	masters := c.Masters(t)
	first := c.Slots(t, masters[0])
	c.MoveSlots(t, masters[0], masters[1], 1000)
	close(stop)
	if err := <-counted; err != nil {
		t.Errorf("count while slots move: %v", err)
	}
	if got := c.Slots(t, masters[0]); !slices.Equal(got, first[1000:]) {
		t.Errorf("%d slots are left of %d, want all but the first 1000", len(got), len(first))
	}
	for _, slot := range []int{first[0], first[999]} {
		if got := c.MasterOf(t, slot); got != masters[1] {
			t.Errorf("slot %d is with %s, want %s", slot, got.Addr, masters[1].Addr)
		}
	}
	c.Settle(t)
}

// countUp counts up every key in turn until it is told to stop, and compares what each came to.
func countUp(client *redis.ClusterClient, keys int, stop chan struct{}) error {
	ctx := context.Background()
	for n := 1; ; n++ {
		for i := range keys {
			got, err := client.Incr(ctx, fmt.Sprint("key", i)).Result()
			if err != nil || got != int64(n) {
				return fmt.Errorf("count %d of key %d: %d, %w", n, i, got, err)
			}
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// wantReply fails the test unless the server answers a command as told.
func wantReply(t *testing.T, r *Redis, want any, command ...string) {
	t.Helper()
	got := r.Do(t, command...)
	if got != want {
		t.Fatalf("%s on %s: %v, want %v", strings.Join(command, " "), r.Addr, got, want)
	}
}
