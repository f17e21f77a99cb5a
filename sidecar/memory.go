package sidecar

import (
	"cmp"
	"io/fs"
	"log/slog"
	"math"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mesh/spillway/sidecar/settings"
)

const (
	heapGrowth = 400 // percent
	unlimited  = math.MaxInt64

	// reserve is how many sixteenths of the cgroup's limit are for what the runtime does not count, such as the program
	// itself, and for what it exceeds its limit by while it collects.
	reserve = 5
)

// budget is how many bytes each thing may take that clients can fill.
type budget struct {
	counters  int64 // the memory store, also for shares
	denials   int64 // spent counters remembered in front of Redis
	reserved  int64 // what post-paid requests took in advance
	tokens    int64 // what tokens yielded
	profiles  int64 // what is known about identities beside the rules
	decisions int64 // refusals and degraded decisions that are kept
	messages  int64 // large requests that are being answered
	peers     int64 // connections of all listeners, with what is unfinished
	rules     int64 // the rules of a management server, estimated; twice as much while they change
	response  int64 // one response of it
}

// decisionBytes is one decision that is kept, as ADMIN_DECISIONS counts.
const decisionBytes = 1 << 10

// keptDecisions is how many decisions are kept of those that the settings ask for.
func (b *budget) keptDecisions(asked int) int {
	return int(min(int64(asked), b.decisions/decisionBytes))
}

// leastResponse is the response of a management server that is taken on the smallest machine.
const leastResponse = 4 << 20

// leastPeers is what peers may hold on the smallest machine: 256 connections.
const leastPeers = 256 * grpcBytes

// spacious is the memory limit that is assumed without one.
const spacious = 2 << 30

// budgetOf divides a part of the memory limit: together a little more than half of it, without the rules of a
// management server. The rest is for what is not bounded by bytes (goroutines, rules of files) and for garbage.
func budgetOf(m settings.Memory, root fs.FS) budget {
	limit := allowedMemory(m, root)
	if limit == unlimited {
		limit = spacious
	}
	return budget{
		counters: limit / 5, denials: limit / 16, reserved: limit / 32, tokens: limit / 32, profiles: limit / 64,
		decisions: limit / 32, messages: limit / 10, peers: max(leastPeers, limit/10), rules: limit / 8,
		response: max(leastResponse, limit/32),
	}
}

// allowedMemory is how much memory the process may take: GOMEMLIMIT or, where that is more or not set,
// the limit of its cgroup.
func allowedMemory(m settings.Memory, root fs.FS) int64 {
	allowed := cgroupLimit(root)
	if m.Limit != "" {
		allowed = min(allowed, debug.SetMemoryLimit(-1))
	}
	return allowed
}

// applyMemory sets what the environment left open. Root is the file system of the machine.
func applyMemory(m settings.Memory, root fs.FS, log *slog.Logger) {
	if m.Growth == "" {
		debug.SetGCPercent(heapGrowth)
	}
	if m.Limit == "" {
		if allowed := cgroupLimit(root); allowed < unlimited {
			debug.SetMemoryLimit(allowed / 16 * (16 - reserve))
		}
	}
	limit := "none"
	if bytes := debug.SetMemoryLimit(-1); bytes < unlimited {
		limit = strconv.FormatInt(bytes>>20, 10) + "MiB"
	}
	log.Info("memory", "gogc", cmp.Or(m.Growth, strconv.Itoa(heapGrowth)), "limit", limit)
}

// cgroupLimit is the least memory, in bytes, that a cgroup of this process allows, or unlimited.
func cgroupLimit(root fs.FS) int64 {
	least := int64(unlimited)
	own, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(fields) < 3 {
			continue
		}
		switch {
		case fields[1] == "": // version 2
			least = min(least, leastUpwards(root, "sys/fs/cgroup", fields[2], "memory.max"))
		case slices.Contains(strings.Split(fields[1], ","), "memory"): // version 1
			least = min(least, leastUpwards(root, "sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"))
		}
	}
	return least
}

// leastUpwards is the least limit of a cgroup and of those above it. In a container the path may be that of the host,
// which does not exist here; the container's own cgroup is then the topmost.
func leastUpwards(root fs.FS, base, cgroup, file string) int64 {
	least := int64(unlimited)
	for dir := path.Join("/", cgroup); ; dir = path.Dir(dir) {
		least = min(least, readLimit(root, path.Join(base, dir, file)))
		if dir == "/" {
			return least
		}
	}
}

// readLimit reads a file with a number of bytes. Version 2 writes max for no limit, and version 1 a number near 2^63.
func readLimit(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return unlimited
	}
	bytes, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || bytes <= 0 || bytes >= 1<<62 {
		return unlimited
	}
	return bytes
}
