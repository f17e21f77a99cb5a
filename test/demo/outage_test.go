package demo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// stage is all that outage.sh meets, without servers: a docker and a clock in a PATH of their own, and pages that
// answer.
type stage struct {
	url   string // of the server that plays Envoy and both sidecars
	bin   string // first in PATH
	calls string // one line for each argument that docker was called with
	off   string // a file that is there while Redis is not
}

// setStage makes a docker that records how it is called and then runs the given lines.
func setStage(t *testing.T, docker string) *stage {
	t.Helper()
	folder := t.TempDir()
	s := &stage{bin: filepath.Join(folder, "bin"), calls: filepath.Join(folder, "calls"),
		off: filepath.Join(folder, "off")}
	must.Do(t, os.Mkdir(s.bin, 0o700))
	for name, text := range map[string]string{
		"docker": fmt.Sprintf("printf '%%s\\n' \"$@\" >>%s\noff=%s\n%s", s.calls, s.off, docker),
		"date":   "echo 0", // no waiting for the next minute
	} {
		must.Do(t, os.WriteFile(filepath.Join(s.bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	server := httptest.NewServer(s.serve())
	t.Cleanup(server.Close)
	s.url = strings.TrimPrefix(server.URL, "http://")
	return s
}

// serve lets ten requests of each user pass, and shows in its metrics whether Redis is off.
func (s *stage) serve() http.Handler {
	var mu sync.Mutex
	passed := map[string]int{}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		degraded := 0
		if _, err := os.Stat(s.off); err == nil {
			degraded = 1
		}
		fmt.Fprintf(w, "spillway_degraded %d\nspillway_live_sidecars 2\n", degraded)
	})
	mux.HandleFunc("/rls", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		user := r.Header.Get("X-User")
		passed[user]++
		if passed[user] > 10 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	return mux
}

// outage runs outage.sh as a user does who sets neither REDIS_OFF nor REDIS_ON, from a folder whose name a shell would
// take apart.
func (s *stage) outage(t *testing.T) (output string, err error) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "it's a $HOME")
	must.Do(t, os.Symlink(filepath.Join(servers.Root(t), "examples", "envoy"), folder))
	cmd := exec.Command("bash", filepath.Join(folder, "outage.sh"))
	cmd.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "ENVOY="+s.url, "SIDECARS="+s.url+" "+s.url,
		"REDIS_OFF=", "REDIS_ON=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// calls is how docker was called, one argument after the other.
func (s *stage) dockerCalls(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimSuffix(read(t, s.calls), "\n"), "\n")
}

// Without settings outage.sh stops and starts the Redis of docker-compose.yaml.
func TestOutageOfTheComposeFile(t *testing.T) {
	s := setStage(t, `case "$4" in stop) : >"$off" ;; start) rm "$off" ;; esac`)
	out, err := s.outage(t)
	if err != nil {
		t.Fatalf("outage.sh: %v\n%s", err, out)
	}
	calls := s.dockerCalls(t)
	if len(calls) != 10 {
		t.Fatalf("docker was called with %q, want five arguments twice", calls)
	}
	file := calls[2]
	_, err = os.Stat(file)
	if err != nil || filepath.Base(file) != "docker-compose.yaml" {
		t.Errorf("docker was given the file %s (%v), want docker-compose.yaml beside the script", file, err)
	}
	want := []string{"compose", "-f", file, "stop", "redis", "compose", "-f", file, "start", "redis"}
	if !slices.Equal(calls, want) {
		t.Errorf("docker was called with %q, want %q", calls, want)
	}
}

// A user who cannot stop Redis gets the reason, and it is started again in case it was stopped after all.
func TestOutageTellsWhyRedisStays(t *testing.T) {
	s := setStage(t, "echo no such service: $5 >&2\nexit 3")
	out, err := s.outage(t)
	if err == nil || !strings.Contains(out, "stop redis\nno such service: redis\n") {
		t.Errorf("outage.sh that cannot stop Redis: %v, want an error and what docker calls:\n%s", err, out)
	}
	if calls := s.dockerCalls(t); len(calls) != 10 || calls[8] != "start" {
		t.Errorf("docker was called with %q, want stop and start", calls)
	}
}
