package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

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

// parseMachine reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. What follows
// is part of user and nice already.
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
