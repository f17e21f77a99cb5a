package fleet

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// idled is how long the processors of this machine have been idle so far, all of them together, in steps of 10 ms. It reports whether the
// kernel tells.
func idled() (time.Duration, bool) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, false
	}
	_, idle, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	seconds, err := strconv.ParseFloat(idle, 64)
	return time.Duration(seconds * float64(time.Second)), err == nil
}

// crowded reports whether more threads want to run on this machine just now than there are processors.
func crowded() bool {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return false
	}
	words := strings.Fields(string(text))
	if len(words) < 4 {
		return false
	}
	runnable, _, _ := strings.Cut(words[3], "/")
	n, err := strconv.Atoi(runnable)
	return err == nil && n > runtime.NumCPU()
}

// processors are the times of this machine's processors, in steps of 10 ms. It reports whether the kernel tells.
func processors() (times, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return times{}, false
	}
	return parseTimes(string(text))
}

// parseTimes reads the first line of /proc/stat: cpu, user, nice, system, idle, iowait, irq, softirq, steal, in hundredths of a second.
func parseTimes(text string) (times, bool) {
	line, _, _ := strings.Cut(text, "\n")
	words := strings.Fields(line)
	if len(words) < 9 || words[0] != "cpu" {
		return times{}, false
	}
	var t times
	for _, word := range words[1:9] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return times{}, false
		}
		t.taken = time.Duration(n) * 10 * time.Millisecond
		t.all += t.taken
	}
	return t, true
}
