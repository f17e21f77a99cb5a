package control_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestGuideOfTheControl starts what make control starts, and runs the commands of docs/guides/control.md.
func TestGuideOfTheControl(t *testing.T) {
	ports := map[string]string{}
	env := append(os.Environ(), "BIN="+filepath.Dir(servers.SpillwayBin(t)), "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	for _, name := range []string{
		"POSTGRES_PORT", "REDIS_PORT", "CONTROL_PORT", "SIDECAR_1_PORT", "SIDECAR_2_PORT", "SIDECAR_1_GRPC_PORT",
		"SIDECAR_2_GRPC_PORT", "SIDECAR_1_DEBUG_PORT", "SIDECAR_2_DEBUG_PORT",
	} {
		_, port, err := net.SplitHostPort(servers.FreeAddr(t))
		if err != nil {
			t.Fatal(err)
		}
		ports[name] = port
		env = append(env, name+"="+port)
	}
	world := exec.Command(filepath.Join(servers.Root(t), "examples", "control", "start.sh"))
	world.Env = env
	started := servers.Start(t, world)
	t.Cleanup(func() {
		started.Send(t, syscall.SIGTERM)
		started.Exit(t)
	})
	servers.Await(t, "the control and its sidecars", func() error {
		if !strings.Contains(started.Output(), "Ctrl-C ends all of it.") {
			return errors.New(started.Output())
		}
		return nil
	})

	out := inGuide(t, ports)
	for _, want := range []string{
		"200 200 200 429", "\n200 \n", "spw_", "version 2 is in force (publication 2)", "20/1m → 5/1m",
		"version 1 is in force (publication 3)", "too few", "this month",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the commands of the guide do not print %q:\n%s", want, out)
		}
	}
	s := &shell{t: t, control: "http://127.0.0.1:" + ports["CONTROL_PORT"]}
	servers.Await(t, "the refusal on record", func() error {
		out, code := s.run("events", "list", "--outcome", "refused")
		for _, want := range []string{"user:ann", "tier:small", "429"} {
			if code != 0 || !strings.Contains(out, want) {
				return fmt.Errorf("it ends with %d: %s", code, out)
			}
		}
		return nil
	})
	servers.Await(t, "this month's usage", func() error {
		out, _ := s.run("usage", "show", "ann")
		_, month, _ := strings.Cut(out, "this month")
		if !strings.HasPrefix(strings.Join(strings.Fields(month), " "), "4 1 4 - -") {
			return fmt.Errorf("it is %s", out)
		}
		return nil
	})
}

// inGuide runs the commands of the guide, with the ports of the test.
func inGuide(t *testing.T, ports map[string]string) string {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join(servers.Root(t), "docs", "guides", "control.md")))(t)
	_, block, found := strings.Cut(string(page), "<!-- make control -->\n```sh\n")
	block, _, ended := strings.Cut(block, "\n```")
	if !found || !ended {
		t.Fatal("docs/guides/control.md has no commands for make control")
	}
	for _, then := range []string{"settle 3", "settle 100; sleep  1"} { // a busy machine may need more than a second
		block = strings.Replace(block, "sleep 1", then, 1)
	}
	block = `settle() { for port in ` + ports["SIDECAR_1_DEBUG_PORT"] + " " + ports["SIDECAR_2_DEBUG_PORT"] + `; do
	  until curl -s "127.0.0.1:$port/v1/rules?domain=api" | grep -q "\"count\": $1," &&
	    curl -s "127.0.0.1:$port/v1/usage?domain=api&user=ann" | grep -q small; do sleep 0.05; done
	done; }
	` + block
	programs := filepath.Dir(servers.SpillwayBin(t))
	block = strings.NewReplacer("8080", ports["SIDECAR_1_PORT"], "8180", ports["SIDECAR_2_PORT"], "sleep 3", ":",
		"/tmp/authz.yaml", filepath.Join(t.TempDir(), "authz.yaml"), "$PWD/bin", programs).Replace(block)
	cmd := exec.Command("bash", "-c", block)
	cmd.Dir = servers.Root(t)
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"),
		"SPILLWAY_CONTROL=http://127.0.0.1:"+ports["CONTROL_PORT"])
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the commands of the guide: %v", err)
	}
	return string(out)
}
