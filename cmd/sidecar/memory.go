package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryMaxFiles hold the memory limit of the container, in bytes: cgroup v2, then v1.
var memoryMaxFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// limitMemory lets the garbage collector work harder near the container's memory limit, instead of being killed at it:
// it may use nine tenths. GOMEMLIMIT goes before.
func limitMemory(files []string) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		limit, ok := memoryLimit(string(text))
		if ok {
			debug.SetMemoryLimit(limit)
		}
		return
	}
}

// memoryLimit reads such a file. There is no limit where it says so, or names more than any machine has.
func memoryLimit(text string) (int64, bool) {
	bytes, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || bytes <= 0 || bytes >= 1<<50 {
		return 0, false
	}
	return bytes / 10 * 9, true
}
