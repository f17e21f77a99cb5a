//go:build !linux

package main

import (
	"errors"
	"time"
)

// cpuOf fails: the processor time of another process is read on Linux only.
func cpuOf(int) (time.Duration, error) {
	return 0, errors.New("run the benchmark on Linux: the processor time of a process is read there only")
}

func sharpenTimers() {}

func sleepThread(d time.Duration) { time.Sleep(d) }
