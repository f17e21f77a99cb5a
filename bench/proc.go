package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc, on every machine that Go's Linux ports run on.
const tick = 10 * time.Millisecond

// cpuOf is the processor time that a process has used, in user and kernel mode.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(text))
}

// parseStat reads utime and stime, fields 14 and 15 of /proc/PID/stat. Field 2 is the program's name in parentheses, which may hold
// blanks and parentheses itself, so fields are counted from its end.
func parseStat(text string) (time.Duration, error) {
	_, rest, found := cutLast(text, ")")
	fields := strings.Fields(rest)
	if !found || len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat has another form than expected: %q", text)
	}
	var sum time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time in /proc/PID/stat: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

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

// cutLast is strings.Cut at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
