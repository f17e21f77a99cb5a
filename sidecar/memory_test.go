package sidecar

import (
	"io/fs"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// machine is a file system with these files.
func machine(files ...string) fs.FS {
	root := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		root[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return root
}

func TestTheCgroupSaysHowMuchMemoryThereIs(t *testing.T) {
	const own, v2, v1 = "proc/self/cgroup", "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
	for _, c := range []struct {
		name  string
		files []string
		want  int64
	}{
		{"no cgroups", nil, unlimited},
		{"version 2, a container", []string{own, "0::/\n", v2 + "memory.max", "268435456\n"}, 256 << 20},
		{"version 2, no limit", []string{own, "0::/\n", v2 + "memory.max", "max\n"}, unlimited},
		{"version 2, a service", []string{own, "0::/system.slice/spillway.service\n",
			v2 + "system.slice/spillway.service/memory.max", "4096\n"}, 4096},
		{"version 2, a limit above", []string{own, "0::/pod/app\n", v2 + "pod/app/memory.max", "max\n",
			v2 + "pod/memory.max", "8192\n"}, 8192},
		{"version 2, the least counts", []string{own, "0::/pod/app\n", v2 + "pod/app/memory.max", "8192\n",
			v2 + "pod/memory.max", "4096\n"}, 4096},
		{"version 2, outside of the namespace", []string{own, "0::/../../other\n", v2 + "memory.max", "4096\n"}, 4096},
		{"version 1", []string{own, "5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n", v1 + "a/memory.limit_in_bytes", "4096\n"},
			4096},
		{"version 1, a path of the host", []string{own, "4:memory:/docker/0123\n", v1 + "memory.limit_in_bytes",
			"4096\n"}, 4096},
		{"version 1, no limit", []string{own, "4:memory:/\n", v1 + "memory.limit_in_bytes", "9223372036854771712\n"},
			unlimited},
		{"nonsense", []string{own, "nonsense\n0::/\n\n", v2 + "memory.max", "-1\n"}, unlimited},
	} {
		if got := cgroupLimit(machine(c.files...)); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
}

func TestMemoryIsSetWhereTheEnvironmentLeavesItOpen(t *testing.T) {
	growth, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(growth)
		debug.SetMemoryLimit(limit)
	})
	root := machine("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "10737418240\n")
	const given = 7 << 30 // as the runtime would read it from GOMEMLIMIT
	for _, c := range []struct {
		name   string
		memory settings.Memory
		root   fs.FS
		growth int
		limit  int64
		logged string
	}{
		{"nothing set", settings.Memory{}, root, 400, 7040 << 20, "gogc=400 limit=7040MiB"},
		{"no limit in sight", settings.Memory{}, machine(), 400, given, "gogc=400 limit=7168MiB"},
		{"GOGC set", settings.Memory{Growth: "100"}, root, 100, 7040 << 20, "gogc=100 limit=7040MiB"},
		{"GOMEMLIMIT set", settings.Memory{Limit: "7GiB"}, root, 400, given, "gogc=400 limit=7168MiB"},
		{"both set", settings.Memory{Growth: "off", Limit: "7GiB"}, root, 100, given, "gogc=off limit=7168MiB"},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(given)
		var log strings.Builder
		applyMemory(c.memory, c.root, slog.New(slog.NewTextHandler(&log, nil)))
		if got := debug.SetGCPercent(100); got != c.growth {
			t.Errorf("%s: the heap grows by %d %%, want %d", c.name, got, c.growth)
		}
		if got := debug.SetMemoryLimit(-1); got != c.limit {
			t.Errorf("%s: the limit is %d, want %d", c.name, got, c.limit)
		}
		if !strings.Contains(log.String(), c.logged) {
			t.Errorf("%s: logged %q, want %q", c.name, log.String(), c.logged)
		}
	}
}

func TestCachesShareTheMemoryLimit(t *testing.T) {
	limit := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(limit) })
	debug.SetMemoryLimit(1 << 40) // as the runtime would read it from GOMEMLIMIT
	cgroup := machine("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "268435456\n")
	for _, c := range []struct {
		name   string
		memory settings.Memory
		root   fs.FS
		limit  int64
	}{
		{"a cgroup", settings.Memory{}, cgroup, 256 << 20},
		{"GOMEMLIMIT above the cgroup", settings.Memory{Limit: "1TiB"}, cgroup, 256 << 20},
		{"GOMEMLIMIT alone", settings.Memory{Limit: "1TiB"}, machine(), 1 << 40},
		{"no limit in sight", settings.Memory{}, machine(), 2 << 30},
	} {
		b := budgetOf(c.memory, c.root)
		if b.counters != c.limit/5 {
			t.Errorf("%s: counters may take %d bytes, want a fifth of %d", c.name, b.counters, c.limit)
		}
		all := b.counters + b.denials + b.reserved + b.tokens + b.profiles + b.decisions + b.messages + b.peers
		if all > c.limit*3/5 || min(b.denials, b.reserved, b.tokens, b.profiles, b.decisions, b.messages, b.peers) < 1 {
			t.Errorf("%s: %+v, want all above 0 and together at most three fifths of %d", c.name, b, c.limit)
		}
	}
}

// TestKeptDecisionsFitIntoSmallContainers: as many are kept as ADMIN_DECISIONS asks for, where there is room for them.
func TestKeptDecisionsFitIntoSmallContainers(t *testing.T) {
	for _, c := range []struct {
		limit       string
		asked, want int
	}{
		{"33554432", 8192, 1024}, {"67108864", 8192, 2048}, {"268435456", 8192, 8192}, {"268435456", 100, 100},
		{"1073741824", 1 << 20, 32768},
	} {
		root := machine("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", c.limit+"\n")
		b := budgetOf(settings.Memory{}, root)
		if got := b.keptDecisions(c.asked); got != c.want {
			t.Errorf("of %d decisions %d are kept in a container of %s bytes, want %d", c.asked, got, c.limit, c.want)
		}
	}
}
