//go:build full

package exact

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// skew is how wrong a clock is in the rows about clocks.
const skew = 5 * time.Second

// redisOff runs Redis on a clock that is wrong, so that those of all sidecars differ from it.
func redisOff(off time.Duration) func(x *trial) {
	return func(x *trial) {
		x.offset = off
		library := wrongClock(x)
		x.Setenv("LD_PRELOAD", library)
		x.Setenv("CLOCK_OFFSET", fmt.Sprint(int(off/time.Second)))
		redis := servers.StartRedis(x)
		x.Setenv("LD_PRELOAD", "")
		x.differs(redis)
		x.beginOn(redis)
		x.waves(3)
	}
}

// differs fails unless the clock of Redis is as wrong as the row wants it.
func (x *trial) differs(redis *servers.Redis) {
	x.Helper()
	parts, ok := redis.Do(x, "TIME").([]any)
	var seconds int64
	if ok {
		fmt.Sscan(fmt.Sprint(parts[0]), &seconds)
	}
	if off := x.now()/1_000_000 - seconds; off < -1 || off > 1 {
		x.Fatalf("Redis is at %v, which is %d s from where the row wants its clock", parts, off)
	}
}

// wrongClock builds a library that adds CLOCK_OFFSET seconds to the clock of a program that is linked dynamically.
func wrongClock(t testing.TB) string {
	t.Helper()
	library := filepath.Join(t.TempDir(), "clock.so")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, "testdata/clock.c").CombinedOutput()
	if err != nil {
		t.Fatalf("build a library for a wrong clock: %v\n%s", err, out)
	}
	return library
}

// sidecarsOff runs sidecars whose clocks are wrong in turn, 5 s ahead and 5 s behind, beside each other.
func sidecarsOff(x *trial) {
	bin := skewedBin(x)
	x.redis = servers.StartRedis(x)
	x.file = filepath.Join(x.TempDir(), "exact.yaml")
	x.write(x.rules())
	for i := range x.n {
		off := skew
		if i%2 == 1 {
			off = -skew
		}
		x.join(servers.StartProgram(x, bin, "REDIS_URL="+x.redis.Addr, "RULES="+x.file,
			"CLOCK_OFFSET="+fmt.Sprint(int(off/time.Second))))
	}
	x.waves(3)
	for i, s := range x.sidecars {
		x.logsAt(s, map[int]time.Duration{0: skew, 1: -skew}[i%2])
	}
}

// logsAt fails unless the log of a sidecar shows that its clock is wrong.
func (x *trial) logsAt(s *servers.Sidecar, off time.Duration) {
	x.Helper()
	_, after, _ := strings.Cut(s.Output(), "time=")
	text, _, _ := strings.Cut(after, " ")
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		x.Fatalf("read the time of the log's first line: %v", err)
	}
	// It was written after the row began and before now.
	if early, late := at.Sub(x.wall)-off, time.Since(at)+off; early < -time.Second || late < -time.Second {
		x.fails("a sidecar whose clock should be off by %v wrote at %v in a row that began at %v", off, at, x.wall)
	}
}

// skewed is the sidecar whose clock adds CLOCK_OFFSET seconds, built once per test process.
var skewed struct {
	sync.Once
	dir string
	err error
}

// skewedBin builds the sidecar on a standard library whose time.Now adds CLOCK_OFFSET seconds to the wall clock. The
// monotonic reading stays. That takes as long as to build everything.
func skewedBin(t testing.TB) string {
	t.Helper()
	root := servers.Root(t)
	skewed.Do(func() { skewed.err = buildSkewed(root) })
	if skewed.err != nil {
		t.Fatalf("build a sidecar with a wrong clock: %v", skewed.err)
	}
	return filepath.Join(skewed.dir, "sidecar")
}

// reading is how package time reads the clock.
var reading = regexp.MustCompile(`\n\tsec, nsec, mono := \w+\(\)\n`)

func buildSkewed(root string) (err error) {
	skewed.dir, err = os.MkdirTemp("", "skewed")
	if err != nil {
		return err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	library := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time")
	original := filepath.Join(library, "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	if len(reading.FindAllIndex(text, -1)) != 1 {
		return fmt.Errorf("%s reads the clock in another way than this test knows", original)
	}
	changed, added, overlay := filepath.Join(skewed.dir, "time.go"), filepath.Join(skewed.dir, "offset.go"),
		filepath.Join(skewed.dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed,
		filepath.Join(library, "offset.go"): added}})
	if err != nil {
		return err
	}
	files := map[string][]byte{changed: reading.ReplaceAll(text, []byte("$0\tsec += clockOffset\n")),
		added: []byte(offsetSource), overlay: list}
	for name, content := range files {
		err = os.WriteFile(name, content, 0o600)
		if err != nil {
			return err
		}
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-overlay", overlay, "-o", skewed.dir, "./cmd/sidecar")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// offsetSource is a file that package time gets.
const offsetSource = `package time

import "syscall"

var clockOffset = func() int64 {
	text, _ := syscall.Getenv("CLOCK_OFFSET")
	offset, sign := int64(0), int64(1)
	for _, c := range []byte(text) {
		if c == '-' {
			sign = -1
			continue
		}
		offset = 10*offset + int64(c-'0')
	}
	return sign * offset
}()
`
