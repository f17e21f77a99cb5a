package servers

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mostStolen is the part of the processors' time that a host may give to other machines while a bound of time is judged.
const mostStolen = 0.05

// Processors tell whether this machine had its processors to itself since they are watched. A host that gives their time to other machines makes everything
// take longer, also what is measured in time of processors.
type Processors struct {
	began  time.Time
	stolen time.Duration
}

// WatchProcessors begins to watch.
func WatchProcessors(t testing.TB) Processors {
	t.Helper()
	return Processors{time.Now(), stolen(t)}
}

// Miss fails the test because a bound of time was missed. Where more than a twentieth of the processors' time went to other machines it says that the bound is
// not judged.
func (p Processors) Miss(t testing.TB, format string, args ...any) {
	t.Helper()
	share := (stolen(t) - p.stolen).Seconds() / time.Since(p.began).Seconds() / float64(runtime.NumCPU())
	what := fmt.Sprintf(format, args...)
	if share > mostStolen {
		t.Logf("NOT JUDGED, because the host gave %.0f %% of the processors' time to other machines: %s", 100*share, what)
		list(t, what)
		return
	}
	t.Error(what)
}

// list adds what is not judged to the file that NOT_JUDGED names, whose lines make test prints at its end.
func list(t testing.TB, what string) {
	t.Helper()
	name := os.Getenv("NOT_JUDGED")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s: %s\n", t.Name(), what)
	if err != nil {
		t.Fatal(err)
	}
}

func stolen(t testing.TB) time.Duration {
	t.Helper()
	total, err := Stolen()
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// Stolen is the processors' time that the host has given to other machines so far. Only Linux counts it.
func Stolen() (time.Duration, error) {
	if runtime.GOOS != "linux" {
		return 0, nil
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseStolen(string(text))
}

// parseStolen reads the first line of /proc/stat: cpu, user, nice, system, idle, iowait, irq, softirq, steal, in hundredths of a second.
func parseStolen(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat has another form than expected: %q", line)
	}
	ticks, err := strconv.ParseInt(fields[8], 10, 64)
	return time.Duration(ticks) * 10 * time.Millisecond, err
}
