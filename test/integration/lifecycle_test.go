package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// limited is nil when an answer reports a limit: the sidecar was asked, and answered.
func (w *world) limited(path string, headers ...string) error {
	got, err := w.try(path, headers...)
	if err != nil {
		return err
	}
	if got.header.Get("x-ratelimit-remaining") == "" {
		return fmt.Errorf("%s was answered with %d, without a limit", path, got.status)
	}
	return nil
}

// refusedWithin sends up to n requests and fails unless one is refused with 429.
func (w *world) refusedWithin(t *testing.T, n int, path string, headers ...string) {
	t.Helper()
	for range n {
		if w.get(t, path, headers...).status == http.StatusTooManyRequests {
			return
		}
	}
	t.Errorf("none of %d requests to %s was refused (headers %v)", n, path, headers)
}

// load sends requests from a few clients until stop is called, which returns how many were sent and what went wrong.
func (w *world) load(t *testing.T, clients int) (stop func() (int64, []string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var (
		wait sync.WaitGroup
		sent atomic.Int64
		mu   sync.Mutex
		bad  []string
	)
	for client := range clients {
		wait.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				got, err := w.try("/load", "x-user", fmt.Sprintf("load-%d-%d", client, i))
				sent.Add(1)
				if err != nil || got.status != http.StatusOK {
					mu.Lock()
					bad = append(bad, fmt.Sprintf("%d %v", got.status, err))
					mu.Unlock()
				}
			}
		})
	}
	return func() (int64, []string) {
		cancel()
		wait.Wait()
		return sent.Load(), bad
	}
}

func TestReloadUnderLoad(t *testing.T) {
	w := start(t, setup{})
	w.noErrors(t, "reload", func(t *testing.T) {
		stop := w.load(t, 4)
		for n := 100; n < 120; n++ {
			w.writeRule(t, "partners.yaml", partnersOf(n))
			if n%5 == 0 {
				w.sidecar.Send(t, syscall.SIGHUP)
			}
			servers.Await(t, "the rules of this round", func() error { return w.partnersLimit(n) })
		}
		// A broken file changes nothing.
		w.writeRule(t, "partners.yaml", "domain: partners\ndescriptors: [{ky: x}]\n")
		servers.Await(t, "the report of the broken file", func() error {
			if !strings.Contains(w.sidecar.Output(), "partners.yaml:2:") {
				return errors.New("the log does not name partners.yaml:2")
			}
			return nil
		})
		if err := w.partnersLimit(119); err != nil {
			t.Errorf("after a broken file the last good rules should stay: %v", err)
		}
		sent, bad := stop()
		if len(bad) > 0 || sent < 100 {
			t.Errorf("%d of %d requests went wrong while rules were reloaded: %.5v", len(bad), sent, bad)
		}
	})
}

func partnersOf(n int) string {
	return fmt.Sprintf("domain: partners\ndescriptors:\n  - {key: partners, value: all, rate_limit: {unit: day, "+
		"requests_per_unit: %d}}\n", n)
}

// partnersLimit is nil when Envoy's clients see that limit.
func (w *world) partnersLimit(n int) error {
	return w.shows("/partners", fmt.Sprintf("%d, %d;w=86400", n, n))
}

// shows is nil when the answer about a path reports that limit.
func (w *world) shows(path, want string) error {
	got, err := w.try(path, "x-user", "looker")
	if err != nil {
		return err
	}
	if limit := got.header.Get("x-ratelimit-limit"); limit != want {
		return fmt.Errorf("x-ratelimit-limit is %q, want %q", limit, want)
	}
	return nil
}

func TestTermUnderLoad(t *testing.T) {
	w := start(t, setup{})
	stop := w.load(t, 8)
	servers.Await(t, "load", func() error { return w.limited("/", "x-user", "probe") })
	// Hold Redis for a moment, so that calls are in flight when the signal comes.
	client := redis.NewClient(&redis.Options{Addr: w.redis.Addr})
	defer client.Close()
	err := client.Do(t.Context(), "CLIENT", "PAUSE", "150", "ALL").Err()
	if err != nil {
		t.Fatalf("hold Redis: %v", err)
	}
	servers.Await(t, "calls in flight", func() error {
		if n := w.envoy.Stat(t, "cluster.spillway.upstream_rq_active"); n == 0 {
			return errors.New("none")
		}
		return nil
	})
	begun := time.Now()
	w.sidecar.Send(t, syscall.SIGTERM)
	code := w.sidecar.Exit(t)
	t.Logf("the sidecar ended after %v", time.Since(begun))
	if code != 0 || strings.Contains(w.sidecar.Output(), "cutting them off") {
		t.Errorf("the sidecar ended with code %d, want 0, and no call cut off:\n%s", code, w.sidecar.Output())
	}
	sent, bad := stop()
	if len(bad) > 0 {
		t.Errorf("%d of %d requests went wrong while the sidecar drained: %.5v", len(bad), sent, bad)
	}
	if n := w.envoy.Stat(t, "cluster.spillway.upstream_cx_destroy_remote_with_active_rq"); n != 0 {
		t.Errorf("%d connections were cut with calls in flight", n)
	}
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "uds") // short: a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	leaveStale(t, socket)
	w := start(t, setup{socket: socket, env: []string{"GRPC_UDS=" + socket, "GRPC_UDS_MODE=0660"}})
	info, err := os.Stat(socket)
	if err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("the socket's mode is %v, %v; want 0660", info.Mode(), err)
	}
	w.noErrors(t, "limited over the socket", func(t *testing.T) {
		inside(t, time.Minute)
		w.wants(t, 10, http.StatusOK, "/", "x-user", "socket").remaining(t, "0")
		w.wants(t, 1, http.StatusTooManyRequests, "/", "x-user", "socket")
	})
	conn, err := net.Dial("tcp", w.sidecar.GRPC)
	if err != nil {
		t.Errorf("the TCP listener is gone beside the socket: %v", err)
	} else {
		conn.Close()
	}
	w.sidecar.Send(t, syscall.SIGTERM)
	if code := w.sidecar.Exit(t); code != 0 {
		t.Errorf("the sidecar ended with code %d", code)
	}
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there after the end: %v", err)
	}
}

// leaveStale leaves a socket without a listener, as a killed sidecar does.
func leaveStale(t *testing.T, socket string) {
	t.Helper()
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"}))(t)
	l.SetUnlinkOnClose(false)
	l.Close()
}
