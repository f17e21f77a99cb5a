// Package mesh applies the manifests of examples/ and the renderings of the chart to a real API server of Kubernetes,
// and lets a real istiod configure real Envoys from them. It needs root: everything runs in namespaces of its own, with
// the addresses and the packet filter of a pod.
package mesh

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

const inside = "MESH_TEST_INSIDE" // set where the namespaces are

func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		os.Exit(servers.Main(m))
	}
	args := append([]string{"--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", os.Args[0]},
		os.Args[1:]...)
	cmd := exec.Command("unshare", args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), inside+"=1"), os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "in namespaces of its own (this needs root):", err)
		os.Exit(1)
	}
}

// run runs a command to its end.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// program is a tool that `make test-mesh` builds.
func program(t *testing.T, parts ...string) string {
	t.Helper()
	file := filepath.Join(append([]string{servers.Root(t), ".tools"}, parts...)...)
	_, err := os.Stat(file)
	if err != nil {
		t.Fatalf("it is missing (make test-mesh builds it): %v", err)
	}
	return file
}

// folder is one that every user may read, unlike t.TempDir.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mesh")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	err := os.WriteFile(file, []byte(text), 0o644)
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// podIP is the address of the workload. All of its network is on loopback, so every other address of it works as well.
const podIP = "10.1.2.3"

// spillwayIP is the address of Spillway behind its Service.
const spillwayIP = "10.1.2.4"

// network makes the addresses of the cluster local ones, and the folder of sockets that the containers of a pod share.
func network(t *testing.T) {
	t.Helper()
	run(t, "mount", "-t", "tmpfs", "tmpfs", "/run")
	t.Cleanup(func() { run(t, "umount", "-l", "/run") })
	run(t, "mkdir", "-m", "777", "/run/spillway")
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "address", "replace", podIP+"/16", "dev", "lo")
}
