package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// Two sidecars with an Envoy each admit together what one limit allows, however many ask at once.
func TestTwoSidecarsShareOneLimit(t *testing.T) {
	first := start(t, setup{})
	second := start(t, setup{env: []string{"REDIS_URL=" + first.redis.Addr}})
	inside(t, 24*time.Hour)
	for round := range 10 {
		user := "together-" + string(rune('a'+round))
		var admitted, refused atomic.Int64
		var wait sync.WaitGroup
		for _, w := range []*world{first, second} {
			for range 10 {
				wait.Go(func() {
					got, err := w.try("/trial", "x-user", user)
					switch {
					case err == nil && got.status == http.StatusOK:
						admitted.Add(1)
					case err == nil && got.status == http.StatusTooManyRequests:
						refused.Add(1)
					}
				})
			}
		}
		wait.Wait()
		if admitted.Load() != 3 || refused.Load() != 17 {
			t.Fatalf("of 20 requests at once %d were admitted and %d refused, want 3 and 17", admitted.Load(),
				refused.Load())
		}
	}
	for _, w := range []*world{first, second} {
		if n := w.envoy.Stat(t, "cluster.app.ratelimit.error"); n != 0 {
			t.Errorf("%d calls to the rate limit service failed", n)
		}
	}
}

// A deployment of the reference server: its environment, its folders, a Kubernetes ConfigMap's links.
func TestReferenceServersEnvironment(t *testing.T) {
	root := t.TempDir()
	config := filepath.Join(root, "ratelimit", "config")
	publish(t, config, "one", tenPerDay)
	w := start(t, setup{env: []string{
		"RULES=", "RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true",
		"RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=SINGLE", "USE_STATSD=false", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true",
	}})
	w.noErrors(t, "limited", func(t *testing.T) {
		inside(t, 24*time.Hour)
		got := w.wants(t, 1, http.StatusOK, "/", "x-user", "mover")
		got.remaining(t, "9")
		if limit, left := got.header.Get("RateLimit-Limit"), got.header.Get("RateLimit-Remaining"); limit != "10" ||
			left != "9" {
			t.Errorf("the reference server's own headers say %q and %q, want 10 and 9", limit, left)
		}
	})
	w.noErrors(t, "swapped", func(t *testing.T) {
		publish(t, config, "two", strings.Replace(tenPerDay, "10", "20", 1))
		servers.Await(t, "the new rules", func() error { return w.shows("/", "20, 20;w=86400") })
		// The counter continues: one of the ten was spent.
		if got := w.wants(t, 1, http.StatusOK, "/", "x-user", "mover"); got.header.Get("x-ratelimit-remaining") !=
			"18" {
			t.Errorf("%s of 20 left after two requests, want 18", got.header.Get("x-ratelimit-remaining"))
		}
	})
}

const tenPerDay = "domain: edge\ndescriptors:\n  - key: user\n    rate_limit:\n      unit: day\n" +
	"      requests_per_unit: 10\n"

// publish puts a file in place the way a kubelet does: a folder of its own, and links that are swapped in one step.
func publish(t *testing.T, folder, version, text string) {
	t.Helper()
	own := filepath.Join(folder, ".."+version)
	err := os.MkdirAll(own, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(own, "edge.yaml"), []byte(text), 0o600)
	}
	if err == nil {
		err = os.Symlink(".."+version, filepath.Join(folder, "..data_tmp"))
	}
	if err == nil {
		err = os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data"))
	}
	if err == nil && version == "one" {
		err = os.Symlink(filepath.Join("..data", "edge.yaml"), filepath.Join(folder, "edge.yaml"))
	}
	if err != nil {
		t.Fatalf("publish rules as a kubelet does: %v", err)
	}
}
