package fleet

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// waited is how long the threads of this process have waited for a processor so far, all of them together. It is 0 where the kernel does
// not count that.
func waited() time.Duration {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0
	}
	var all time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/schedstat")
		if err != nil {
			continue // it has just ended
		}
		all += delay(string(text))
	}
	return all
}

// delay is the second number of a schedstat: nanoseconds spent ready to run, and waiting.
func delay(schedstat string) time.Duration {
	fields := strings.Fields(schedstat)
	if len(fields) < 2 {
		return 0
	}
	ns, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}
