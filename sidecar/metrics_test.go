package sidecar

import (
	"bufio"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// statsdServer listens as statsd does, and returns what the first connection sends.
func statsdServer(t *testing.T) (port string, lines <-chan string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	got := make(chan string, 1000)
	go func() {
		defer close(got)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for scan := bufio.NewScanner(conn); scan.Scan(); {
			got <- scan.Text()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, got
}

func TestStatsdGetsWhatWasCounted(t *testing.T) {
	port, lines := statsdServer(t)
	s := begin(t, twoPerYear, "USE_STATSD=true", "STATSD_HOST=127.0.0.1", "STATSD_PORT="+port,
		"STATS_FLUSH_INTERVAL=1h", "EXTRA_TAGS=zone:a")
	for range 3 {
		sendJSON(t, s, "shop", "user", "alice", "")
	}
	s.halt(t)
	var got []string
	for line := range lines {
		got = append(got, line)
	}
	for _, want := range []string{
		"ratelimit.service.rate_limit.shop.user.total_hits.__zone=a:3|c",
		"ratelimit.service.rate_limit.shop.user.over_limit.__zone=a:1|c",
		"ratelimit.service.config_load_success.__zone=a:1|c",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("statsd got %q, want %q among it", got, want)
		}
	}
}

func TestADeadStatsdIsALineInTheLogAndNoMore(t *testing.T) {
	s := begin(t, twoPerYear, "USE_STATSD=true", "STATSD_HOST=127.0.0.1", "STATSD_PORT=1", "STATS_FLUSH_INTERVAL=5ms")
	servers.Await(t, "a line about statsd", func() error {
		sendJSON(t, s, "shop", "user", "alice", "")
		return s.logs("statistics not sent to statsd")
	})
	_, page := fetch(t, s.Addresses().Debug, "/stats")
	if strings.Contains(page, "spillway_statsd_dropped_total 0\n") {
		t.Errorf("nothing counts as dropped:\n%s", page)
	}
}

func TestEveryMetricOfASidecarIsInTheReference(t *testing.T) {
	page := must.Get(os.ReadFile("../docs/reference/metrics.md"))(t)
	redis := servers.StartRedis(t)
	s := begin(t, twoPerYear, "REDIS_URL="+redis.Addr, "USE_DOG_STATSD=true", "LOG_DECISIONS=all")
	sendJSON(t, s, "shop", "user", "alice", "")
	_, scraped := fetch(t, s.Addresses().Debug, "/metrics")
	found := regexp.MustCompile(`(?m)^# TYPE ((?:spillway|ratelimit)_\w+) `).FindAllStringSubmatch(scraped, -1)
	if len(found) < 40 {
		t.Fatalf("a sidecar has %d metrics, want more:\n%s", len(found), scraped)
	}
	for _, name := range found {
		if !strings.Contains(string(page), "`"+name[1]+"`") {
			t.Errorf("docs/reference/metrics.md lacks %s: run make docs", name[1])
		}
	}
}
