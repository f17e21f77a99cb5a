package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// wantUndecided spends once and fails the test unless the answer is undecided for one of the reasons.
func wantUndecided(t *testing.T, r *Redis, c limit.Charge, reasons ...string) {
	t.Helper()
	d := spend(r, c)[0]
	if d.Outcome != limit.Undecided || d.Charged != 0 {
		t.Fatalf("decision %+v, want undecided", d)
	}
	for _, reason := range reasons {
		if d.Reason == reason {
			return
		}
	}
	t.Fatalf("undecided because of %q, want %q", d.Reason, reasons)
}

// awaitAllowed waits until the store decides again.
func awaitAllowed(t *testing.T, r *Redis, c limit.Charge) {
	t.Helper()
	servers.Await(t, "a decision", func() error {
		if d := spend(r, c)[0]; d.Outcome != limit.Allowed {
			return fmt.Errorf("decision %+v", d)
		}
		return nil
	})
}

func TestHungServerIsAnsweredWithinTheDeadline(t *testing.T) {
	server := servers.StartRedis(t)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, Budget: 50 * time.Millisecond})
	c := charge(t, "k", bucket(1_000_000, time.Hour), 1)
	awaitAllowed(t, r, c)
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("stop the server: %v", err)
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		decisions := make([]limit.Decision, 1)
		r.Spend(ctx, []limit.Charge{c}, decisions)
		if ctx.Err() != nil {
			t.Fatalf("the answer came after the deadline")
		}
		cancel()
		if d := decisions[0]; d.Outcome != limit.Undecided || d.Reason != fleet.ReasonTimeout {
			t.Fatalf("decision %+v, want undecided because of a timeout", d)
		}
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the server: %v", err)
	}
	awaitAllowed(t, r, c)
}

func TestPatienceIsAPartOfWhatIsLeft(t *testing.T) {
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{servers.FreeAddr(t)}}, Budget: time.Millisecond, Patience: time.Hour})
	for _, step := range []struct{ left, least, most time.Duration }{
		{24 * time.Hour, time.Hour, time.Hour},
		{50 * time.Minute, 30 * time.Minute, 40 * time.Minute},
		{-time.Second, -time.Second, 0},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), step.left)
		got := r.allowance(ctx)
		cancel()
		if got < step.least || got > step.most {
			t.Errorf("patience %v with %v left, want %v to %v", got, step.left, step.least, step.most)
		}
	}
	if got := r.allowance(context.Background()); got != time.Hour {
		t.Errorf("patience %v without a deadline, want an hour", got)
	}
}

func TestNoTimeLeftMeansNoCall(t *testing.T) {
	server := servers.StartRedis(t)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	ctx, cancel := context.WithTimeout(context.Background(), -time.Second)
	defer cancel()
	decisions := make([]limit.Decision, 1)
	r.Spend(ctx, []limit.Charge{charge(t, "k", bucket(1, time.Hour), 1)}, decisions)
	if d := decisions[0]; d.Outcome != limit.Undecided || d.Reason != fleet.ReasonDeadline {
		t.Fatalf("decision %+v, want undecided because of the deadline", d)
	}
	if s := r.Stats(); s.Trips != 0 || s.Undecided != 1 {
		t.Fatalf("stats %+v, want no trip and one undecided call", s)
	}
}

func TestCallsInFlightAreBounded(t *testing.T) {
	server := servers.StartRedis(t)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, MaxInFlight: 4})
	c := charge(t, "k", bucket(100, time.Hour), 1)
	awaitAllowed(t, r, c)
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("stop the server: %v", err)
	}
	var mu sync.Mutex
	reasons := map[string]int{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			d := spend(r, c)[0]
			mu.Lock()
			defer mu.Unlock()
			reasons[d.Reason]++
		})
	}
	servers.Await(t, "calls beyond the bound", func() error {
		mu.Lock()
		defer mu.Unlock()
		return notYet(reasons[fleet.ReasonOverload] == 16)
	})
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the server: %v", err)
	}
	all.Wait()
	if reasons[""] != 4 || reasons[fleet.ReasonOverload] != 16 {
		t.Fatalf("reasons %v, want 4 decisions and 16 overloads", reasons)
	}
}

func TestKilledServerComesBack(t *testing.T) {
	server := servers.StartRedis(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, OnError: func(reason string, err error) {
		mu.Lock()
		defer mu.Unlock()
		seen[reason] = err != nil
	}})
	c := charge(t, "k", bucket(1_000_000, time.Hour), 1)
	awaitAllowed(t, r, c)
	server.Kill(t)
	for range 100 {
		wantUndecided(t, r, c, fleet.ReasonDial, fleet.ReasonClosed, fleet.ReasonBreaker)
	}
	mu.Lock()
	if !seen[fleet.ReasonDial] && !seen[fleet.ReasonClosed] {
		t.Errorf("OnError saw %v, want an error of the connection", seen)
	}
	mu.Unlock()
	server.Start(t)
	awaitAllowed(t, r, c)
}

func TestStoreStartsWithoutAServer(t *testing.T) {
	server := servers.StartRedis(t)
	server.Kill(t)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	c := charge(t, "k", bucket(3, time.Hour), 1)
	wantUndecided(t, r, c, fleet.ReasonDial)
	server.Start(t)
	awaitAllowed(t, r, c)
}

func TestClosedStoreIsUndecided(t *testing.T) {
	server := servers.StartRedis(t)
	r := NewRedis(RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, Budget: patient})
	if err := r.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	wantUndecided(t, r, charge(t, "k", bucket(3, time.Hour), 1), fleet.ReasonShutdown)
	if err := r.Reset(context.Background(), []string{"k"}); err == nil {
		t.Fatalf("reset on a closed store reports no error")
	}
}

func TestForeignValueHarmsItsOwnKeyOnly(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		bad, good := charge(t, "bad", l, 1), charge(t, "good", l, 1)
		e.do("SET", bad.Key, "of another program")
		wantUndecided(t, r, bad, fleet.ReasonWrong)
		e.do("DEL", bad.Key)
		e.do("SADD", bad.Key, "x")
		wantUndecided(t, r, bad, fleet.ReasonWrong)
		want(t, "another key", spend(r, good)[0], limit.Allowed, 1, 4)
		for _, d := range spend(r, good, bad) {
			if d.Outcome != limit.Undecided {
				t.Fatalf("a request with the foreign key: %+v, want undecided", d)
			}
		}
		wantLeft(t, r, good, 4)
	})
}

// TestRepliesOfARealServer makes a server refuse for each reason that can be had from one at will.
func TestRepliesOfARealServer(t *testing.T) {
	for _, step := range []struct {
		name     string
		settings []string
		setup    []any
		config   RedisConfig
		reason   string
	}{
		{name: "replica", settings: []string{"--replicaof", "127.0.0.1 1"}, reason: fleet.ReasonReadonly},
		{name: "full", setup: []any{"CONFIG", "SET", "maxmemory", "1"}, reason: fleet.ReasonOOM},
		{name: "no password", settings: []string{"--requirepass", "sesame"}, reason: fleet.ReasonNoAuth},
		{name: "wrong password", settings: []string{"--requirepass", "sesame"}, config: RedisConfig{Servers: fleet.Servers{Password: "x"}}, reason: fleet.ReasonNoAuth},
		{
			name: "no right to keys", setup: []any{"ACL", "SETUSER", "bob", "on", ">pw", "+@all", "~other:*"},
			config: RedisConfig{Servers: fleet.Servers{Username: "bob", Password: "pw"}}, reason: fleet.ReasonNoPerm,
		},
		{
			name: "no right to scripts", setup: []any{"ACL", "SETUSER", "bob", "on", ">pw", "+@all", "-@scripting", "~*"},
			config: RedisConfig{Servers: fleet.Servers{Username: "bob", Password: "pw"}}, reason: fleet.ReasonNoPerm,
		},
		{
			name: "no right to a command inside", setup: []any{"ACL", "SETUSER", "bob", "on", ">pw", "+@all", "-set", "~*"},
			config: RedisConfig{Servers: fleet.Servers{Username: "bob", Password: "pw"}}, reason: fleet.ReasonNoPerm,
		},
		{name: "cannot save", settings: []string{"--save", "3600 1"}, reason: fleet.ReasonMisconf},
	} {
		t.Run(step.name, func(t *testing.T) {
			server := servers.StartRedis(t, step.settings...)
			if step.setup != nil {
				look(t, server, redis.Options{}).do(step.setup...)
			}
			if step.reason == fleet.ReasonMisconf {
				look(t, server, redis.Options{}).failToSave(server)
			}
			step.config.Addresses = []string{server.Addr}
			wantUndecided(t, openRedis(t, step.config), charge(t, "k", bucket(3, time.Hour), 1), step.reason)
		})
	}
}

// failToSave puts a folder where the server wants to write its data.
func (e eye) failToSave(server *servers.Redis) {
	e.t.Helper()
	if err := os.Mkdir(filepath.Join(filepath.Dir(server.Socket), "dump.rdb"), 0o700); err != nil {
		e.t.Fatalf("put a folder in the way: %v", err)
	}
	servers.Await(e.t, "a save that failed", func() error {
		e.client.Do(context.Background(), "BGSAVE")
		if !strings.Contains(e.do("INFO", "persistence").(string), "rdb_last_bgsave_status:err") {
			return errors.New("the last save went well")
		}
		return nil
	})
}

func TestServerInAnEndlessScriptIsBusy(t *testing.T) {
	server := servers.StartRedis(t, "--busy-reply-threshold", "20")
	e := look(t, server, redis.Options{ReadTimeout: time.Minute})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, Budget: time.Second})
	c := charge(t, "k", bucket(100, time.Hour), 1)
	awaitAllowed(t, r, c)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.client.Eval(context.Background(), "while true do end", nil)
	}()
	servers.Await(t, "a busy server", func() error {
		if d := spend(r, c)[0]; d.Reason != fleet.ReasonBusy {
			return fmt.Errorf("decision %+v", d)
		}
		return nil
	})
	servers.Await(t, "the end of the script", func() error {
		return look(t, server, redis.Options{}).client.ScriptKill(context.Background()).Err()
	})
	<-ended
	awaitAllowed(t, r, c)
}

func TestPingTellsWhetherTheServerAnswers(t *testing.T) {
	server := servers.StartRedis(t)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	servers.Await(t, "the sign of life of a server that answers", func() error {
		if got := r.Ping(t.Context()); got != "" {
			return fmt.Errorf("a server that answers is %q", got)
		}
		return nil
	})
	server.Hang(t)
	if got := r.Ping(t.Context()); got != fleet.ReasonTimeout {
		t.Errorf("a server that hangs is %q, want %q", got, fleet.ReasonTimeout)
	}
	server.Kill(t)
	servers.Await(t, "the loss of a dead server", func() error {
		if got := r.Ping(t.Context()); got != fleet.ReasonDial {
			return fmt.Errorf("a server that is gone is %q, want %q", got, fleet.ReasonDial)
		}
		return nil
	})
}
