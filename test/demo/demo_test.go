// Package demo holds the demo of examples/envoy to what its pages promise.
package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// demo is examples/envoy/start.sh, started as `make demo` does but on free ports.
type demo struct {
	*servers.Process
	tmp string // its TMPDIR
}

// ports are the variables that change where start.sh and its children listen.
var ports = []string{
	"ENVOY_PORT", "ENVOY_ADMIN_PORT", "SIDECAR_1_PORT", "SIDECAR_2_PORT", "SIDECAR_1_GRPC_PORT", "SIDECAR_2_GRPC_PORT",
	"SIDECAR_1_HTTP_PORT", "SIDECAR_2_HTTP_PORT", "REDIS_PORT", "UPSTREAM_PORT",
}

// launch starts the demo on free ports, but for those that env sets, and waits until it runs or fails.
func launch(t *testing.T, env ...string) *demo {
	t.Helper()
	d := &demo{tmp: t.TempDir()}
	cmd := exec.Command("examples/envoy/start.sh")
	cmd.Dir = servers.Root(t)
	cmd.Env = append(os.Environ(), "TMPDIR="+d.tmp, "ENVOY_BIN="+servers.EnvoyBin(t),
		"SIDECAR_BIN="+servers.SidecarBin(t))
	for _, name := range ports {
		cmd.Env = append(cmd.Env, name+"="+portOf(servers.FreeAddr(t)))
	}
	cmd.Env = append(cmd.Env, env...)
	d.Process = servers.Start(t, cmd)
	if awaitWords(d, "Ctrl-C ends it all.", "demo: ") == nil {
		return d
	}
	t.Fatalf("the demo neither runs nor prints why:\n%s", d.Output())
	return nil
}

// awaitWords waits for one of the words in the program's output, a minute at most.
func awaitWords(d *demo, words ...string) error {
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(deadline) {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(d.Output(), word) }) {
			return nil
		}
		<-tick.C
	}
	return errors.New("not printed")
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func start(t *testing.T) *demo {
	t.Helper()
	d := launch(t)
	if !strings.Contains(d.Output(), "Ctrl-C ends it all.") {
		t.Fatalf("the demo does not start:\n%s", d.Output())
	}
	return d
}

// found is the first group of an expression in the output.
func (d *demo) found(t *testing.T, expression string) string {
	t.Helper()
	match := regexp.MustCompile(expression).FindStringSubmatch(d.Output())
	if match == nil {
		t.Fatalf("the demo does not print %s:\n%s", expression, d.Output())
	}
	return match[1]
}

// script runs the line that the demo prints for a script.
func (d *demo) script(t *testing.T, name string) string {
	t.Helper()
	line := d.found(t, `(?m)^(ENVOY=.*/`+regexp.QuoteMeta(name)+`)$`)
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = servers.Root(t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// pids are the processes that the demo started.
func (d *demo) pids(t *testing.T) []int {
	t.Helper()
	var all []int
	for _, match := range regexp.MustCompile(`(?m)^  (\S+) +pid (\d+)$`).FindAllStringSubmatch(d.Output(), -1) {
		pid := must.Get(strconv.Atoi(match[2]))(t)
		all = append(all, pid)
	}
	if len(all) != 5 {
		t.Fatalf("the demo has %d processes, want Redis, upstream, two sidecars and Envoy:\n%s", len(all), d.Output())
	}
	return all
}

// gone fails unless the processes and the files of the demo are.
func (d *demo) gone(t *testing.T, pids []int) {
	t.Helper()
	servers.Await(t, "the end of all processes", func() error {
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil {
				return fmt.Errorf("process %d is still there", pid)
			}
		}
		return nil
	})
	left, err := os.ReadDir(d.tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("the demo leaves %v behind (%v)", left, err)
	}
}

func TestDemo(t *testing.T) {
	d := start(t)
	pids := d.pids(t)
	t.Run("listens on loopback only", func(t *testing.T) { onLoopback(t, pids) })
	t.Run("try.sh", d.limits)
	t.Run("try.sh again", func(t *testing.T) { d.script(t, "try.sh") })
	t.Run("outage.sh", d.survives)
	t.Run("operate.sh", d.operates) // the order of the pages: Redis is empty again
	t.Run("Envoy reached a sidecar each time", d.noErrors)
	d.Send(t, syscall.SIGINT)
	if code := d.Exit(t); code != 0 {
		t.Errorf("the demo ends with %d, want 0", code)
	}
	d.gone(t, pids)
}

// limits holds what try.sh shows against the rules: ten of a minute over RLS, a bucket of twenty over ext_authz.
func (d *demo) limits(t *testing.T) {
	early(t)
	out := d.script(t, "try.sh")
	series := regexp.MustCompile(`(?m)^  (200(?: 200)*) 429$`).FindAllStringSubmatch(out, -1)
	if len(series) != 2 {
		t.Fatalf("try.sh shows %d doors that go from 200 to 429, want 2:\n%s", len(series), out)
	}
	if n := strings.Count(series[0][1], "200"); n != 10 {
		t.Errorf("the rate limit service let %d pass, want 10:\n%s", n, out)
	}
	// A token comes back every three seconds, and a busy machine may take some for twenty requests.
	if n := strings.Count(series[1][1], "200"); n < 20 || n > 25 {
		t.Errorf("ext_authz let %d pass, want 20 and what came back meanwhile:\n%s", n, out)
	}
	if strings.Count(out, "HTTP/1.1 429") != 2 || strings.Count(out, "retry-after: ") != 2 {
		t.Errorf("try.sh does not show both refusals:\n%s", out)
	}
	// Requests go to the sidecars in turn, so ten admitted of eleven means that they share one count.
	answered := regexp.MustCompile(`/metrics: ([1-9]\d*) decisions`).FindAllString(out, -1)
	if len(answered) != 2 {
		t.Errorf("not both sidecars were asked:\n%s", out)
	}
}

// survives holds what outage.sh shows against the promises: right answers and a gauge without Redis, and recovery.
func (d *demo) survives(t *testing.T) {
	out := d.script(t, "outage.sh")
	var admitted []string
	for _, match := range regexp.MustCompile(`(?m)^  (\d+) admitted$`).FindAllStringSubmatch(out, -1) {
		admitted = append(admitted, match[1])
	}
	// Without Redis, too: Envoy asks the two sidecars in turn, and each lets its share of five pass.
	if !slices.Equal(admitted, []string{"10", "10", "10"}) {
		t.Errorf("admitted before, during and after: %v, want 10 each:\n%s", admitted, out)
	}
	var gauge []string
	for _, match := range regexp.MustCompile(`spillway_degraded (\d)`).FindAllStringSubmatch(out, -1) {
		gauge = append(gauge, match[1])
	}
	if !slices.Equal(gauge, []string{"0", "0", "1", "1", "0", "0"}) {
		t.Errorf("spillway_degraded of the two sidecars goes %v, want 0 0 1 1 0 0:\n%s", gauge, out)
	}
	if !strings.Contains(d.Output(), "Redis is off.") || !strings.Contains(d.Output(), "Redis is on.") {
		t.Errorf("Redis was never off and on:\n%s", d.Output())
	}
}

// noErrors fails when Envoy could not ask: requests that pass for that reason look like any other.
func (d *demo) noErrors(t *testing.T) {
	r := must.Get(http.Get(d.found(t, `Envoy's admin page +(http://\S+)`) + "/stats?usedonly&filter=ratelimit.error|" +
		"ext_authz.error|failure_mode_allowed"))(t)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || len(text) > 0 {
		t.Errorf("Envoy could not ask: %s (%v)", text, err)
	}
}

// early waits for the first part of a minute, so that a count does not fall into two windows.
func early(t *testing.T) {
	t.Helper()
	for range 2 {
		if time.Now().Second() <= 45 {
			return
		}
		timer := time.NewTimer(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		<-timer.C
	}
}

// When something ends that was not asked to end, a demo that seems to run would be a puzzle.
func TestDemoEndsWithItsProcesses(t *testing.T) {
	d := start(t)
	pids := d.pids(t)
	must.Do(t, syscall.Kill(pids[1], syscall.SIGKILL))
	if code := d.Exit(t); code != 1 || !strings.Contains(d.Output(), "demo: upstream ended") {
		t.Errorf("without its upstream the demo ends with %d, want 1 and why:\n%s", code, d.Output())
	}
	d.gone(t, pids)
}

func TestDemoNamesThePortThatIsTaken(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	port := portOf(l.Addr().String())
	d := launch(t, "ENVOY_PORT="+port)
	if code := d.Exit(t); code != 1 || !strings.Contains(d.Output(), "port "+port+" is taken") {
		t.Errorf("a port that is taken = %d, want 1 and which:\n%s", code, d.Output())
	}
}

// onLoopback fails when one of the processes listens beyond loopback.
func onLoopback(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		sockets := socketsOf(t, pid)
		listening := 0
		for _, family := range []string{"tcp", "tcp6"} {
			text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, family)))(t)
			for line := range strings.Lines(string(text)) {
				// sl local_address rem_address st … inode: 0A is LISTEN, 0100007F is 127.0.0.1.
				fields := strings.Fields(line)
				if len(fields) < 10 || fields[3] != "0A" || !sockets[fields[9]] {
					continue
				}
				listening++
				if !strings.HasPrefix(fields[1], "0100007F:") {
					t.Errorf("process %d listens on %s", pid, fields[1])
				}
			}
		}
		if listening == 0 {
			t.Errorf("process %d listens nowhere: this test looks in the wrong place", pid)
		}
	}
}

// socketsOf are the inodes of a process's sockets.
func socketsOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	files := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)))(t)
	inodes := map[string]bool{}
	for _, file := range files {
		target, err := os.Readlink(file)
		if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}
