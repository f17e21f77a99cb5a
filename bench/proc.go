package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// cpuOf is the processor time that a process has used, in user and kernel mode: the same sum as utime and stime of /proc/PID/stat,
// but in nanoseconds in place of hundredths of a second.
func cpuOf(pid int) (time.Duration, error) {
	// The clock of a process has this number on Linux, see clock_getcpuclockid(3).
	const schedClock = 2
	clock := int32(^pid<<3 | schedClock)
	var t syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&t)), 0)
	if failed != 0 {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, failed)
	}
	return time.Duration(t.Nano()), nil
}

// tick is the unit of /proc/stat, on every machine that Go's Linux ports run on.
const tick = 10 * time.Millisecond

// machine is the time of all processors together.
type machine struct{ busy, all time.Duration }

func cpuOfMachine() (machine, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machine{}, err
	}
	return parseMachine(string(text))
}

// parseMachine reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. What follows is part of
// user and nice already.
func parseMachine(text string) (machine, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return machine{}, fmt.Errorf("/proc/stat has another form than expected: %q", line)
	}
	var m machine
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return machine{}, fmt.Errorf("processor time in /proc/stat: %w", err)
		}
		m.all += time.Duration(n) * tick
		if i != 3 && i != 4 {
			m.busy += time.Duration(n) * tick
		}
	}
	return m, nil
}
