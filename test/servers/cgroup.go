package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// cgroups are where a memory cgroup can be made, with the file of its limit: version 2, then version 1.
var cgroups = []struct{ base, limit string }{
	{"/sys/fs/cgroup", "memory.max"},
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
}

// StartSidecarWithin is StartSidecar with that many bytes of memory, in a cgroup as a container has one. Where the
// machine does not allow to make a cgroup, GOMEMLIMIT is set to eleven sixteenths of, as the sidecar itself would.
func StartSidecarWithin(t testing.TB, memory int64, env ...string) *Sidecar {
	t.Helper()
	dir := memoryCgroup(t, memory)
	if dir == "" {
		t.Log("this machine does not allow to make a memory cgroup: GOMEMLIMIT stands in for it")
		return StartSidecar(t, append(env, fmt.Sprintf("GOMEMLIMIT=%d", memory/16*11))...)
	}
	t.Logf("the sidecar runs in %s", dir)
	cmd := exec.Command("/bin/sh", "-c", `echo $$ >"$1/cgroup.procs" && exec "$2"`, "sh", dir, SidecarBin(t))
	return awaitSidecar(t, launch(t, cmd, env))
}

// memoryCgroup makes a cgroup with that limit, which is removed when the test ends. It returns "" where that is not
// possible.
func memoryCgroup(t testing.TB, memory int64) string {
	for _, c := range cgroups {
		dir := filepath.Join(c.base, fmt.Sprintf("spillway-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if limitCgroup(filepath.Join(dir, c.limit), memory) != nil {
			syscall.Rmdir(dir)
			continue
		}
		t.Cleanup(func() {
			Await(t, "the end of the cgroup's processes", func() error { return syscall.Rmdir(dir) })
		})
		return dir
	}
	return ""
}

// limitCgroup writes a limit into its file, which is there unless the folder is not a cgroup or lacks the memory
// controller.
func limitCgroup(file string, memory int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(strconv.FormatInt(memory, 10))
	return err
}

var peak = regexp.MustCompile(`VmHWM:\s*(\d+) kB`)

// PeakMemory is the most memory that the process ever had resident, in bytes.
func (p *Process) PeakMemory() (int64, error) {
	select {
	case <-p.ended:
		return 0, fmt.Errorf("the process ended with %v", p.ProcessState)
	default:
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		return 0, err
	}
	found := peak.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("the status of the process lacks VmHWM")
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10, err
}
