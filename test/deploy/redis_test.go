package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// directives are the settings of deploy/redis/redis.conf, as words of a command line, and by name.
func directives(t *testing.T) (words []string, values map[string]string) {
	t.Helper()
	values = map[string]string{}
	for line := range strings.Lines(page(t, "deploy/redis/redis.conf")) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(line, "#") {
			continue
		}
		words = append(append(words, "--"+fields[0]), fields[1:]...)
		values[fields[0]] = strings.Join(fields[1:], " ")
	}
	return words, values
}

// TestRedisKeepsCounters starts Redis with deploy/redis/redis.conf. It takes every setting, evicts nothing, and has its
// counters after a crash, and after a backup of each kind was restored.
func TestRedisKeepsCounters(t *testing.T) {
	words, values := directives(t)
	r := servers.StartRedis(t, words...)
	for name, want := range values {
		if got := fmt.Sprint(r.Do(t, "CONFIG", "GET", name)); !strings.Contains(got, want) && name != "maxmemory" &&
			name != "auto-aof-rewrite-min-size" { // these two in bytes
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	most := fmt.Sprint(r.Do(t, "CONFIG", "GET", "maxmemory"))
	if values["maxmemory-policy"] != "noeviction" || most == "[maxmemory 0]" {
		t.Error("a full server has to refuse writes: failure policies decide, and no counter is forgotten")
	}
	r.Do(t, "SET", "rl1:{shop|ann}:user:all:1:tb", "7", "PX", "3600000")
	kept := func(after string) {
		t.Helper()
		if got := fmt.Sprint(r.Do(t, "GET", "rl1:{shop|ann}:user:all:1:tb")); got != "7" {
			t.Errorf("after %s the counter is %s, want 7", after, got)
		}
		if got := fmt.Sprint(r.Do(t, "PTTL", "rl1:{shop|ann}:user:all:1:tb")); strings.HasPrefix(got, "-") {
			t.Errorf("after %s the counter has no end: %s", after, got)
		}
	}
	r.Kill(t)
	r.Start(t)
	kept("a crash")
	for _, kind := range []string{"rdb", "aof"} {
		backup, data := filepath.Join(t.TempDir(), kind), filepath.Join(t.TempDir(), kind+"-data")
		script(t, r, kind, backup)
		script(t, r, "restore", backup, data)
		r.Kill(t)
		r.StartIn(t, data, words...)
		kept("a restore of " + kind)
	}
}

// script runs deploy/backup/redis.sh.
func script(t *testing.T, r *servers.Redis, words ...string) {
	t.Helper()
	cmd := exec.Command("../../deploy/backup/redis.sh", words...)
	cmd.Env = append(os.Environ(), "REDIS_CLI=redis-cli -s "+r.Socket)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("redis.sh %v: %v\n%s", words, err, out)
	}
}
