package telemetry

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store"
	"github.com/spillway-mesh/spillway/store/denials"
	"github.com/spillway-mesh/spillway/test/must"
)

// receiver is a statsd server: what it got comes line by line.
func receiver(t *testing.T, network string) (address string, lines <-chan string) {
	t.Helper()
	got := make(chan string, 10_000)
	read := func(from io.Reader) {
		for scan := bufio.NewScanner(from); scan.Scan(); {
			got <- scan.Text()
		}
	}
	if network == "udp" {
		conn := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
		t.Cleanup(func() { conn.Close() })
		go func() {
			packet := make([]byte, 64<<10)
			for {
				n, _, err := conn.ReadFrom(packet)
				if err != nil {
					return
				}
				if n > datagram {
					got <- fmt.Sprintf("a datagram of %d bytes", n)
				}
				read(strings.NewReader(string(packet[:n])))
			}
		}()
		return conn.LocalAddr().String(), got
	}
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go read(conn)
		}
	}()
	return l.Addr().String(), got
}

// collect takes that many lines, sorted.
func collect(t *testing.T, lines <-chan string, n int) []string {
	t.Helper()
	var all []string
	for range n {
		select {
		case line := <-lines:
			all = append(all, line)
		case <-time.After(time.Minute):
			t.Fatalf("%d lines arrived, want %d: %q", len(all), n, all)
		}
	}
	slices.Sort(all)
	return all
}

func expectLines(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("statsd got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// idle is a sender that flushes only when it is closed.
func idle(m *Telemetry, cfg StatsdConfig) *Statsd {
	cfg.Every = time.Hour
	return m.Statsd(cfg)
}

func TestStatisticsHaveTheReferenceServersNames(t *testing.T) {
	address, lines := receiver(t, "tcp")
	m := New(Config{})
	m.Measure(func() any {
		return store.RedisStats{Redis: redis.Stats{Connections: 3, Opened: 7, Ended: 4},
			Denials: denials.Stats{Hits: 5, Misses: 6}}
	})
	s := idle(m, StatsdConfig{Address: address})
	m.Count(m.Series("shop", []string{"user"}), Hit{Hits: 2, Capacity: 1, Over: true, Shadow: true, Cached: true})
	m.Count(m.Series("shop", []string{"tenant", "path_/a", "ip_10.0.0.1"}), Hit{Hits: 1, Charged: 1, Capacity: 1,
		Left: 1})
	m.Decided(m.Rule("", "", ""), engine.Unknown)
	m.Decided(m.Rule("shop", "user", "descriptor"), engine.Shadowed)
	m.Loaded("abc", time.Unix(0, 0))
	m.LoadFailed()
	m.StoreAway()
	m.Panicked()
	s.Close(t.Context())
	const of = "ratelimit.service.rate_limit.shop."
	expectLines(t, collect(t, lines, 19), []string{
		of + "user.total_hits:2|c", of + "user.over_limit:2|c", of + "user.over_limit_with_local_cache:2|c",
		of + "user.shadow_mode:2|c",
		of + "tenant.path_/a.ip_10_0_0_1.total_hits:1|c", of + "tenant.path_/a.ip_10_0_0_1.within_limit:1|c",
		of + "tenant.path_/a.ip_10_0_0_1.near_limit:1|c",
		"ratelimit.service.rate_limit.other.domain_not_found:1|c",
		"ratelimit.service.config_load_success:1|c", "ratelimit.service.config_load_error:1|c",
		"ratelimit.service.global_shadow_mode:1|c",
		"ratelimit.service.call.should_rate_limit.redis_error:1|c",
		"ratelimit.service.call.should_rate_limit.service_error:1|c",
		"ratelimit.redis_pool.cx_active:3|g", "ratelimit.redis_pool.cx_total:7|c",
		"ratelimit.redis_pool.cx_local_close:4|c",
		"ratelimit.localcache.hitCount:5|c", "ratelimit.localcache.missCount:6|c",
		"ratelimit.localcache.entryCount:0|g",
	})
}

func TestCountersAreSentAsWhatWasAdded(t *testing.T) {
	address, lines := receiver(t, "tcp")
	m := New(Config{})
	s := m.Statsd(StatsdConfig{Address: address, Every: 20 * time.Millisecond})
	defer s.Close(t.Context())
	of := m.Series("shop", []string{"user"})
	for _, n := range []int64{3, 4} {
		m.Count(of, Hit{Hits: n, Over: true, Capacity: 10, Left: 10})
		expectLines(t, collect(t, lines, 1),
			[]string{fmt.Sprintf("ratelimit.service.rate_limit.shop.user.total_hits:%d|c", n)})
	}
}

func TestTagsStandInTheNameOrBehindIt(t *testing.T) {
	tags := map[string]string{"zone": "eu.1", "app": "a:b"}
	for network, want := range map[string]string{
		"tcp": "ratelimit.service.config_load_error.__app=a_b.__zone=eu_1:1|c",
		"udp": "ratelimit.service.config_load_error:1|c|#app:a_b,zone:eu_1",
	} {
		address, lines := receiver(t, network)
		m := New(Config{})
		s := idle(m, StatsdConfig{Address: address, Dog: network == "udp", Tags: tags})
		m.LoadFailed()
		s.Close(t.Context())
		expectLines(t, collect(t, lines, 1), []string{want})
	}
}

func TestManyStatisticsArriveInDatagramsThatNoNetworkSplits(t *testing.T) {
	address, lines := receiver(t, "udp")
	m := New(Config{})
	s := idle(m, StatsdConfig{Address: address, Dog: true})
	want := make([]string, 100)
	for i := range want {
		m.Count(m.Series("shop", []string{fmt.Sprintf("user_%d", i)}), oneHit)
		want[i] = fmt.Sprintf("ratelimit.service.rate_limit.shop.user_%d.total_hits:1|c", i)
	}
	s.Close(t.Context())
	expectLines(t, collect(t, lines, len(want)), want)
}

// oneHit makes one statistic, total_hits.
var oneHit = Hit{Hits: 1, Over: true, Capacity: 10, Left: 10}

// calls runs that many unary calls of one method through the interceptor.
func calls(m *Telemetry, n int) {
	i := m.Unary(GRPC{Methods: []string{should}, Log: slog.New(slog.DiscardHandler)})
	for range n {
		i(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: should},
			func(context.Context, any) (any, error) {
				return "ok", nil
			})
	}
}

func TestResponseTimesAreAFairSample(t *testing.T) {
	for _, c := range []struct {
		calls, want int
		share       string
	}{{maxTimes, maxTimes, "|ms"}, {maxTimes + 1, maxTimes, "|ms|@0.999001"},
		{4 * maxTimes, maxTimes, "|ms|@0.250000"}} {
		address, lines := receiver(t, "tcp")
		m := New(Config{})
		s := idle(m, StatsdConfig{Address: address})
		calls(m, c.calls)
		s.Close(t.Context())
		got := collect(t, lines, c.want+1)
		if total := fmt.Sprintf("ratelimit_server.ShouldRateLimit.total_requests:%d|c", c.calls); got[len(got)-1] !=
			total {
			t.Errorf("after %d calls statsd got %q, want %q", c.calls, got[len(got)-1], total)
		}
		if first := got[0]; !strings.HasPrefix(first, "ratelimit_server.ShouldRateLimit.response_time:") ||
			!strings.HasSuffix(first, c.share) {
			t.Errorf("after %d calls a response time is %q, want one that ends with %s", c.calls, first, c.share)
		}
	}
}

func TestADeadStatsdCostsDroppedStatisticsAndOneErrorForEachFlush(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.Close() // no server listens there now
	var errors int
	m := New(Config{})
	s := idle(m, StatsdConfig{Address: l.Addr().String(), OnError: func(error) { errors++ }})
	for i := range 5000 {
		m.Count(m.Series("shop", []string{fmt.Sprintf("user_%d", i)}), oneHit)
	}
	s.Close(t.Context())
	if errors != 1 {
		t.Errorf("a flush without a server reports %d errors, want 1", errors)
	}
	expectLine(t, scrape(t, m), "spillway_statsd_dropped_total 5000")
	expectLine(t, scrape(t, m), "spillway_statsd_lines_total 0")
}

func TestAStatsdThatComesBackIsUsedAgain(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	m := New(Config{})
	s := m.Statsd(StatsdConfig{Address: l.Addr().String(), Every: 20 * time.Millisecond})
	defer s.Close(t.Context())
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for range 2 {
			if conn, err := l.Accept(); err == nil {
				accepted <- conn
			}
		}
	}()
	for range 2 {
		var conn net.Conn
		for conn == nil { // what is written to a connection that has just ended is lost
			m.LoadFailed()
			select {
			case conn = <-accepted:
			case <-time.After(20 * time.Millisecond):
			}
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "ratelimit.service.config_load_error:") {
			t.Errorf("a connection brought %q, %v", line, err)
		}
		conn.Close() // the next statistic needs a new connection
	}
}

func TestAStatsdThatReadsNothingHoldsUpNobody(t *testing.T) {
	narrow := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
	}}
	l, err := narrow.Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts in the kernel, and reads nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := New(Config{})
	for i := range 25_000 {
		m.Count(m.Series("shop", []string{fmt.Sprintf("%s_%d", strings.Repeat("x", 240), i)}), oneHit)
	}
	s := idle(m, StatsdConfig{Address: l.Addr().String()})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	s.Close(ctx) // if it waited for the server, it would never return
	if s.dropped.Load() == 0 {
		t.Error("7 MB went to a server that reads nothing, and nothing was dropped")
	}
}

func TestStatisticsAreFlushedAtTheirInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		flushed := make(chan time.Time, 10)
		s := m.Statsd(StatsdConfig{Address: "127.0.0.1:99999", Every: 10 * time.Second, OnError: func(error) {
			flushed <- time.Now()
		}})
		start := time.Now()
		m.LoadFailed()
		if got := (<-flushed).Sub(start); got != 10*time.Second {
			t.Errorf("the first flush comes after %v, want 10s", got)
		}
		s.Close(t.Context())
	})
}
