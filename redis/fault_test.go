package redis_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// other runs as count does, as another script.
var other = redis.NewScript(`return {7, redis.call('INCR', KEYS[1])}`, false)

// stateOf is the state of the breaker in front of the only server.
func stateOf(c *redis.Client) breaker.State { return c.Servers()[0].Breaker().State() }

// wantFault sends a request and wants it to fail.
func wantFault(t *testing.T, c *redis.Client, reason string, mayHaveRun bool) {
	t.Helper()
	_, err := do(t, c, add("a"))
	if redis.Reason(err) != reason || redis.MayHaveRun(err) != mayHaveRun {
		t.Errorf("the error is %v (%s, may have run: %v), want %s, %v",
			err, redis.Reason(err), redis.MayHaveRun(err), reason, mayHaveRun)
	}
}

// recovers waits until requests are answered again.
func recovers(t *testing.T, c *redis.Client) {
	t.Helper()
	servers.Await(t, "an answer", func() error {
		_, err := do(t, c, add("a"))
		return err
	})
}

// TestAScriptWhoseReplyIsLostRunsOnce: nothing sends it again.
func TestAScriptWhoseReplyIsLostRunsOnce(t *testing.T) {
	for name, step := range map[string]struct {
		mode   servers.Mode
		reason string
	}{
		"silence": {servers.DropReplies, redis.ReasonTimeout},
		"reset":   {servers.ResetReplies, redis.ReasonClosed},
		"end":     {servers.HalfClose, redis.ReasonClosed},
	} {
		t.Run(name, func(t *testing.T) {
			server := servers.StartRedis(t)
			proxy := servers.StartProxy(t, server.Addr)
			cfg := at(redis.Single, proxy.Addr)
			if step.mode == servers.DropReplies {
				cfg.Silence = time.Second
			}
			c := open(t, cfg)
			wantCount(t, c, "a", 1)
			proxy.Set(servers.Fault{Mode: step.mode})
			wantFault(t, c, step.reason, true)
			if got := server.Do(t, "GET", "a"); got != "2" {
				t.Errorf("the counter is %v, want 2", got)
			}
			proxy.Set(servers.Fault{})
			wantCount(t, c, "a", 3)
		})
	}
}

// TestRepliesInFrontOfALostConnectionCount: of two scripts in one pipeline the reply of the first comes.
func TestRepliesInFrontOfALostConnectionCount(t *testing.T) {
	server := servers.StartRedis(t)
	forger := servers.StartForger(t, server)
	c := open(t, at(redis.Single, forger.Addr))
	wantCount(t, c, "a", 1)
	var runs atomic.Int64
	forger.Set(func(words []string) []byte {
		if words[0] != "EVALSHA" || runs.Add(1) != 2 {
			return nil
		}
		return []byte("?\r\n") // no reply begins so: the connection is of no use any more
	})
	first, second := add("b"), &redis.Pending{Script: other, Keys: []string{"b"}, Replies: 1}
	c.Server("b").Do(first, second)
	await(t, first, second)
	if first.Err != nil || !slices.Equal(first.Reply, []int64{7, 1}) {
		t.Errorf("the first request: %v, %v", first.Reply, first.Err)
	}
	if second.Err == nil || !redis.MayHaveRun(second.Err) {
		t.Errorf("the second request: %v, %v", second.Reply, second.Err)
	}
}

func TestAServerThatIsAway(t *testing.T) {
	server := servers.StartRedis(t)
	c := open(t, at(redis.Single, server.Addr))
	wantCount(t, c, "a", 1)
	server.Kill(t)
	wantFault(t, c, redis.ReasonDial, false)
	servers.Await(t, "an open breaker", func() error {
		_, err := do(t, c, add("a"))
		if redis.Reason(err) != redis.ReasonBreaker {
			return errors.New(redis.Reason(err))
		}
		return nil
	})
	if _, err := c.Ask(t.Context(), "a", "GET", "a"); redis.Reason(err) != redis.ReasonBreaker {
		t.Errorf("a cold command behind the breaker: %v", err)
	}
	if _, err := c.Run(t.Context(), "a", "GET", "a"); redis.Reason(err) != redis.ReasonDial || redis.MayHaveRun(err) {
		t.Errorf("a cold command beside the breaker: %v", err)
	}
	server.Start(t)
	recovers(t, c)
	if s := c.Servers()[0].Breaker().Stats(); s.State != breaker.Closed || s.Opened == 0 || s.Rejected == 0 {
		t.Errorf("stats of the breaker: %+v", s)
	}
}

// TestAServerThatWasAwayForLong: after many failed dials the library dials once a second.
func TestAServerThatWasAwayForLong(t *testing.T) {
	addr := servers.FreeAddr(t)
	c := open(t, at(redis.Single, addr))
	for range 50 {
		_, err := c.Run(t.Context(), "a", "PING")
		if redis.Reason(err) != redis.ReasonDial {
			t.Fatalf("a server that is not there: %v", err)
		}
		_, _ = do(t, c, add("a"))
	}
}

// TestAStaleConnectionIsNotUsed: the server has closed it while nothing was under way.
func TestAStaleConnectionIsNotUsed(t *testing.T) {
	server := servers.StartRedis(t)
	c := open(t, at(redis.Single, server.Addr))
	wantCount(t, c, "a", 1)
	for range 10 {
		server.Kill(t)
		server.Start(t)
		wantCount(t, c, "a", 1)
	}
}

// TestAServerThatHangsOpensTheBreaker after two calls that were under way at once.
func TestAServerThatHangsOpensTheBreaker(t *testing.T) {
	server := servers.StartRedis(t)
	changes := make(chan string, 9)
	cfg := at(redis.Single, server.Addr)
	cfg.Prefix, cfg.Silence = "main ", time.Second
	cfg.OnBreaker = func(name string, from, to breaker.State) { changes <- fmt.Sprint(name, ": ", from, " ", to) }
	c := open(t, cfg)
	wantCount(t, c, "a", 1)
	server.Hang(t)
	one, two := add("a"), add("a")
	c.Server("a").Do(one)
	servers.Await(t, "the first under way", func() error {
		if statsOf(c).InFlight == 0 {
			return errors.New("it waits")
		}
		return nil
	})
	c.Server("a").Do(two)
	await(t, one, two)
	if redis.Reason(one.Err) != redis.ReasonTimeout || redis.Reason(two.Err) != redis.ReasonTimeout {
		t.Errorf("requests to a server that hangs: %v and %v", one.Err, two.Err)
	}
	if want := "main " + server.Addr + ": closed open"; <-changes != want {
		t.Errorf("the change must be %q", want)
	}
	_ = server.Signal(18) // SIGCONT
	recovers(t, c)
}

// TestRepliesThatProveThatNothingRan are followed by one more try, whichever comes then.
func TestRepliesThatProveThatNothingRan(t *testing.T) {
	for reply, reason := range map[string]string{
		"-LOADING Redis is loading the dataset in memory":                                     redis.ReasonLoading,
		"-READONLY You can't write against a read only replica.":                              redis.ReasonReadonly,
		"-NOSCRIPT No matching script. Please use EVAL.":                                      redis.ReasonScript,
		"-OOM command not allowed when used memory > 'maxmemory'.":                            redis.ReasonOOM,
		"-MISCONF Redis is configured to save RDB snapshots":                                  redis.ReasonMisconf,
		"-BUSY Redis is busy running a script.":                                               redis.ReasonBusy,
		"-ERR max number of clients reached":                                                  redis.ReasonClients,
		"-NOPERM this user has no permissions":                                                redis.ReasonNoPerm,
		"-MOVED 3999 127.0.0.1:1":                                                             redis.ReasonCluster,
		"-WRONGTYPE Operation against a key holding the wrong kind of value":                  redis.ReasonWrong,
		"-ERR Error running script (call to f_1): @user_script:1: READONLY You can't write":   redis.ReasonScript,
		"-ERR ACL failure in script: User limits has no permissions to run the 'get' command": redis.ReasonNoPerm,
	} {
		t.Run(reply[1:9], func(t *testing.T) {
			forger := servers.StartForger(t, servers.StartRedis(t))
			c := open(t, at(redis.Single, forger.Addr))
			wantCount(t, c, "a", 1)
			again := reason == redis.ReasonLoading || reason == redis.ReasonReadonly ||
				strings.HasPrefix(reply, "-NOSCRIPT")
			for _, times := range []int64{1, 2} {
				var met atomic.Int64
				forger.Set(func(words []string) []byte {
					if !strings.HasPrefix(words[0], "EVAL") || met.Add(1) > times {
						return nil
					}
					return []byte(reply + "\r\n")
				})
				_, err := do(t, c, add("a"))
				if again && times == 1 {
					if err != nil {
						t.Errorf("the second try failed: %v", err)
					}
					continue
				}
				inside := strings.HasPrefix(reply, "-ERR Error") || strings.HasPrefix(reply, "-ERR ACL")
				if redis.Reason(err) != reason || redis.MayHaveRun(err) != inside {
					t.Errorf("the error is %v (%s), want %s", err, redis.Reason(err), reason)
				}
				if again && met.Load() != 2 || !again && met.Load() != 1 {
					t.Errorf("%d tries", met.Load())
				}
			}
		})
	}
}

func TestAServerThatIsFull(t *testing.T) {
	server := servers.StartRedis(t)
	server.Do(t, "CONFIG", "SET", "maxclients", "1")
	open(t, at(redis.Single, server.Addr))
	c := open(t, at(redis.Single, server.Addr))
	servers.Await(t, "the reason", func() error {
		_, err := do(t, c, add("a"))
		if redis.MayHaveRun(err) {
			t.Fatalf("may have run: %v", err)
		}
		if redis.Reason(err) != redis.ReasonClients {
			return fmt.Errorf("the reason is %s: %w", redis.Reason(err), err)
		}
		return nil
	})
}

// TestWhatIsNoFaultOfTheServerOpensNothing: a wrong right or a foreign value is for an operator to mend.
func TestWhatIsNoFaultOfTheServerOpensNothing(t *testing.T) {
	server := servers.StartRedis(t)
	c := open(t, at(redis.Single, server.Addr))
	server.Do(t, "RPUSH", "a", "x")
	for range 20 {
		wantFault(t, c, redis.ReasonWrong, false)
	}
	if stateOf(c) != breaker.Closed {
		t.Errorf("the breaker is %s", stateOf(c))
	}
}

// TestAHurriedCallerOpensNothing: its deadline ends the call long before the server is silent.
func TestAHurriedCallerOpensNothing(t *testing.T) {
	server := servers.StartRedis(t)
	cfg := at(redis.Single, server.Addr)
	cfg.Silence = time.Minute
	c := open(t, cfg)
	c.Ready(t.Context())
	server.Hang(t)
	for range 20 {
		ctx, cancel := withTimeout(t, time.Millisecond)
		_, err := c.Ask(ctx, "a", "GET", "a")
		cancel()
		if redis.Reason(err) != redis.ReasonTimeout {
			t.Errorf("the error is %v", err)
		}
	}
	_ = server.Signal(18) // SIGCONT
	if stateOf(c) != breaker.Closed {
		t.Errorf("the breaker is %s", stateOf(c))
	}
}

// TestRepliesThatNoServerSends end with an error, and without a panic.
func TestRepliesThatNoServerSends(t *testing.T) {
	for _, reply := range []string{
		"*-2\r\n", "*99999999999\r\n", "$99999999999999\r\n", "$-7\r\n", "!\r\n", "\r\n", ":\r\n", "-MOVED\r\n",
		"-ASK 1 :\r\n", "-\r\n", "*1\r\n*1\r\n*1\r\n-ERR x\r\n", "%1\r\n:1\r\n:2\r\n", ">2\r\n+a\r\n+b\r\n:1\r\n",
	} {
		forger := servers.StartForger(t, servers.StartRedis(t))
		cfg := at(redis.Single, forger.Addr)
		cfg.OnPanic = func(fault any) { t.Logf("a panic for %q: %v", reply, fault) }
		c := open(t, cfg)
		wantCount(t, c, "a", 1)
		forger.Set(func(words []string) []byte {
			if words[0] != "EVALSHA" {
				return nil
			}
			return []byte(reply)
		})
		if got, err := do(t, c, add("a")); err == nil {
			t.Errorf("the reply %q is read as %v", reply, got)
		}
		forger.Set(nil)
		recovers(t, c)
	}
}
