package fleet

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// processors is how many this process may use.
var processors = runtime.NumCPU()

// crowded reports whether more threads than there are processors want to run on this machine just now.
func crowded() bool {
	text, err := os.ReadFile("/proc/loadavg")
	return err == nil && runnable(string(text)) > processors
}

// runnable is how many threads want to run, this one included, as the fourth word of loadavg says.
func runnable(loadavg string) int {
	words := strings.Fields(loadavg)
	if len(words) < 4 {
		return 0
	}
	running, _, _ := strings.Cut(words[3], "/")
	n, err := strconv.Atoi(running)
	if err != nil {
		return 0
	}
	return n
}
