package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/test/servers"
)

// replyRows are the faults of a server that answers, but not with a decision.
var replyRows = []row{
	{id: "X14", fault: "SCRIPT FLUSH every 100 ms", short: 3 * time.Second, full: 10 * time.Second, run: flushed},
	{id: "X15", fault: "OOM: maxmemory without eviction", short: 3 * time.Second, full: 5 * time.Second,
		run: failing("oom", configure("maxmemory", "1", "0"))},
	{id: "X16a", fault: "READONLY: it becomes a replica", full: 5 * time.Second, run: failing("readonly", replica)},
	{id: "X16b", fault: "LOADING after a restart", full: 5 * time.Second,
		run: failing("loading", loading, "--appendonly", "no", "--rdbcompression", "no", "--key-load-delay", "5000",
			"--loading-process-events-interval-bytes", "1024")},
	{id: "X16c", fault: "BUSY in an endless script", full: 2 * time.Second,
		run: failing("busy", busy, "--busy-reply-threshold", "100")},
	{id: "X16d", fault: "MISCONF: it cannot save", full: 5 * time.Second, run: failing("misconf", unsaved, "--save",
		"3600 1", "--stop-writes-on-bgsave-error", "no")},
	{id: "X16e", fault: "no more clients", full: 5 * time.Second, run: failing("clients", crowded)},
	{id: "X16f", fault: "NOAUTH: a password appears", full: 5 * time.Second, run: misconfigured("noauth", locked)},
	{id: "X16g", fault: "NOPERM on the keys of one rule", full: 5 * time.Second,
		run: misconfigured("noperm", forbidden)},
	{id: "X17", fault: "WRONGTYPE: a foreign value under one key", full: 10 * time.Second, run: func(x *trial) {
		x.emptied = func(key int) bool { return key == foreignKey }
		misconfigured("wrongtype", foreign)(x)
		if x.seen.degraded > 10 {
			x.misses("%d answers were degraded: the key was not deleted at once", x.seen.degraded)
		}
	}},
}

// fault is something to do to a server, and to undo.
type fault struct {
	begin, repair func()
	hits          func(key int) bool // which keys it is about; nil: all
}

// failing is a server that cannot do its work and returns the reason: an outage, logged with that reason.
func failing(reason string, of func(x *trial) fault, settings ...string) func(x *trial) {
	return func(x *trial) {
		x.start(settings...)
		f := of(x)
		x.outage(f.begin, f.repair)
		x.alarmNames(reason)
	}
}

// misconfigured is a server that is well, and an operator's mistake: the rules' failure policies decide what it
// concerns, the breaker stays closed, and nothing else is touched.
func misconfigured(reason string, of func(x *trial) fault) func(x *trial) {
	return func(x *trial) {
		x.start()
		f := of(x)
		x.during(f.begin, f.repair)
		x.common()
		x.late(0.01)
		x.keepsClosed()
		x.alarmNames(reason)
		if f.hits != nil {
			x.undisturbed("for other keys", func(a *answer) bool { return !f.hits(a.key) })
		}
	}
}

// alarmNames checks that the alarm names the reason, and that degraded decisions were counted under it.
func (x *trial) alarmNames(reason string) {
	x.Helper()
	label := `reason="` + reason + `"`
	if x.grownSick("spillway_store_errors_total", label) == 0 {
		x.fails("no call to the store failed with the reason %q", reason)
	}
	if x.grownSick("spillway_degraded_decisions_total", label) > 0 {
		return
	}
	reasons := map[string]int{}
	for i := range x.all {
		reasons[x.all[i].degraded]++
	}
	x.misses("no degraded decision has the reason %q, but %v", reason, reasons)
}

// do sends a command to the server, past the proxy.
func (x *trial) do(args ...any) any {
	x.Helper()
	reply, err := x.admin.Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		x.Fatalf("%v: %v", args, err)
	}
	return reply
}

// configure is a setting that goes wrong, and back.
func configure(name, wrong, right string) func(x *trial) fault {
	return func(x *trial) fault {
		return fault{begin: func() { x.do("CONFIG", "SET", name, wrong) }, repair: func() {
			x.do("CONFIG", "SET", name, right)
		}}
	}
}

// inFlight is how many batches a sidecar has under way.
const inFlight = 2

// usualFor is how long the load runs before the scripts go: a p99 of less is that of a few answers.
const usualFor = 5 * time.Second

// flushed takes the script from the server again and again: it is sent again, and no caller is disturbed.
func flushed(x *trial) {
	x.start()
	evals := x.evals()
	pass(usualFor)
	done, flushes := make(chan struct{}), make(chan int64)
	x.during(func() {
		go func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for n := int64(0); ; n++ {
				select {
				case <-done:
					flushes <- n
					return
				case <-tick.C:
					x.admin.ScriptFlush(context.Background())
				}
			}
		}()
	}, func() { close(done) })
	x.common()
	x.keepsClosed()
	x.late(0.01)
	x.undisturbed("while scripts were flushed", func(*answer) bool { return true })
	n := <-flushes
	evals = x.evals() - evals
	before, within := x.quantile(0.99, x.began.Add(-usualFor), x.began), x.quantile(0.99, x.began, x.ended)
	x.note("%d flushes, %d EVALs, p99 %v, before %v", n, evals, within.Round(10*time.Microsecond),
		before.Round(10*time.Microsecond))
	if evals > n*inFlight {
		x.fails("%d EVALs for %d flushes, at most %d each", evals, n, inFlight)
	}
	if evals < n/2 {
		x.misses("%d EVALs for %d flushes: hardly any was noticed", evals, n)
	}
	if within > 2*before {
		x.misses("p99 is %v, more than twice the %v of before", within, before)
	}
}

// evals is how often the server got the text of a script.
func (x *trial) evals() (n int64) {
	x.Helper()
	for _, line := range strings.Fields(fmt.Sprint(x.do("INFO", "commandstats"))) {
		fmt.Sscanf(line, "cmdstat_eval:calls=%d,", &n)
	}
	return n
}

func replica(x *trial) fault {
	return fault{begin: func() { x.do("REPLICAOF", "127.0.0.1", "1") }, repair: func() {
		x.do("REPLICAOF", "NO", "ONE")
	}}
}

// loading is a restart with so much data that it takes the length of the fault: a key is read in 5 ms, and is so long
// that the server looks after its clients with each.
func loading(x *trial) fault {
	x.do("EVAL", "for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'filler' .. i, ('x'):rep(1024)) end", 0,
		x.length.Milliseconds()/5)
	return fault{
		begin: func() {
			x.admin.ShutdownSave(context.Background())
			servers.Await(x, "the end of the server", func() error {
				if x.admin.Ping(context.Background()).Err() == nil {
					return errors.New("it answers")
				}
				return nil
			})
			x.redis.Start(x)
		},
		repair: func() {},
	}
}

// busy is a server in a script that does not end before the operator kills it.
func busy(x *trial) fault {
	spinner := redis.NewClient(&redis.Options{Addr: x.redis.Addr, MaxRetries: -1, ReadTimeout: time.Minute})
	x.Cleanup(func() { spinner.Close() })
	return fault{
		begin: func() { go spinner.Eval(context.Background(), "while true do end", nil) },
		repair: func() {
			servers.Await(x, "the end of the script", func() error {
				return x.admin.ScriptKill(context.Background()).Err()
			})
		},
	}
}

// unsaved is a server that could not save, and then gets stop-writes-on-bgsave-error.
func unsaved(x *trial) fault {
	err := os.Mkdir(filepath.Join(filepath.Dir(x.redis.Socket), "dump.rdb"), 0o700)
	if err != nil {
		x.Fatalf("put a folder where the server saves: %v", err)
	}
	servers.Await(x, "a save that fails", func() error {
		x.admin.BgSave(context.Background())
		if !strings.Contains(fmt.Sprint(x.do("INFO", "persistence")), "rdb_last_bgsave_status:err") {
			return errors.New("the last save went well")
		}
		return nil
	})
	return configure("stop-writes-on-bgsave-error", "yes", "no")(x)
}

// crowded is a server that cuts all connections and takes no more.
func crowded(x *trial) fault {
	f := configure("maxclients", "1", "10000")(x)
	return fault{begin: func() {
		f.begin()
		x.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	}, repair: f.repair}
}

// locked is a server that gets a password that the sidecar lacks. Connections that are there keep their rights, so they
// are cut one at a time: all at once would be an outage of its own.
func locked(x *trial) fault {
	f := configure("requirepass", "sesame", "")(x)
	return fault{repair: f.repair, begin: func() {
		f.begin()
		own := x.do("CLIENT", "ID")
		for _, line := range strings.Split(strings.TrimSpace(fmt.Sprint(x.do("CLIENT", "LIST"))), "\n") {
			var id int64
			_, err := fmt.Sscanf(line, "id=%d ", &id)
			if err == nil && own != id {
				x.admin.ClientKillByFilter(context.Background(), "ID", fmt.Sprint(id))
				pass(20 * time.Millisecond)
			}
		}
	}}
}

// forbidden takes the right to the keys of one rule from the sidecar's user.
func forbidden(x *trial) fault {
	return fault{
		begin: func() {
			x.do("ACL", "SETUSER", "default", "resetkeys", "~rl1:{closed*", "~rl1:{local*", "~rl1:{share*")
		},
		repair: func() { x.do("ACL", "SETUSER", "default", "allkeys") },
		hits:   func(key int) bool { return domainOf(key) == "open" },
	}
}

// foreignKey is the key whose counter is replaced.
const foreignKey = 30

// foreign puts a set where the counter of one key was. The sidecar deletes it, so there is nothing to repair.
func foreign(x *trial) fault {
	ctx := context.Background()
	names, err := x.admin.Keys(ctx, fmt.Sprintf("rl1:{*|k%d}*", foreignKey)).Result()
	if err != nil || len(names) != 1 {
		x.Fatalf("find the counter of key %d: %q, %v", foreignKey, names, err)
	}
	return fault{
		begin: func() {
			_, err := x.admin.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Del(ctx, names[0])
				p.SAdd(ctx, names[0], "x")
				return nil
			})
			if err != nil {
				x.Fatalf("change the value under %s: %v", names[0], err)
			}
		},
		repair: func() {},
		hits:   func(key int) bool { return key == foreignKey },
	}
}
