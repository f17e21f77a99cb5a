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
