package servers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Envoy is an Envoy of the test's own.
type Envoy struct {
	Addr  string // host:port of its first listener
	Admin string // host:port of its admin interface
	Pid   int
}

// EnvoyBin is the program: ENVOY_BIN, else what `make tools` fetched. A test without it fails.
func EnvoyBin(t testing.TB) string {
	t.Helper()
	bin := os.Getenv("ENVOY_BIN")
	if bin == "" {
		bin = filepath.Join(Root(t), ".tools", "envoy", "envoy")
	}
	_, err := os.Stat(bin)
	if err != nil {
		missing("Envoy", "make demo-tools, or name the program in ENVOY_BIN")
	}
	return bin
}

// Root is the folder of the module.
func Root(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("this program was built without its file names")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// StartEnvoy starts Envoy with a bootstrap whose listener and admin ports are 0, and waits until it serves. No port is
// chosen beforehand: its admin API reports them.
func StartEnvoy(t testing.TB, config string) *Envoy {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "envoy.yaml")
	err := os.WriteFile(file, []byte(config), 0o600)
	if err != nil {
		t.Fatalf("write the configuration of Envoy: %v", err)
	}
	adminFile := filepath.Join(dir, "admin")
	cmd := Child(t, EnvoyBin(t), "-c", file, "--disable-hot-restart", "--concurrency", "1", "-l", "error",
		"--admin-address-path", adminFile)
	e := &Envoy{Pid: cmd.Process.Pid}
	Await(t, "Envoy's admin address", func() error {
		text, err := os.ReadFile(adminFile)
		if err == nil && !strings.Contains(string(text), ":") {
			err = fmt.Errorf("%s holds %q", adminFile, text)
		}
		e.Admin = strings.TrimSpace(string(text))
		return err
	})
	Await(t, "Envoy's readiness", func() error {
		_, err := e.get("/ready")
		return err
	})
	e.Addr = e.listener(t)
	return e
}

// ValidateEnvoy fails the test when Envoy refuses the configuration.
func ValidateEnvoy(t testing.TB, file string) {
	t.Helper()
	out, err := exec.Command(EnvoyBin(t), "--mode", "validate", "-l", "critical", "-c", file).CombinedOutput()
	if err != nil {
		t.Fatalf("Envoy refuses %s: %v\n%s", file, err, out)
	}
}

// Stat is the value of one counter or gauge, 0 when Envoy has not counted it yet.
func (e *Envoy) Stat(t testing.TB, name string) int64 {
	t.Helper()
	text, err := e.get("/stats?usedonly&filter=^" + strings.ReplaceAll(name, ".", `\.`) + "$")
	if err != nil {
		t.Fatalf("read Envoy's %s: %v", name, err)
	}
	_, value, found := strings.Cut(strings.TrimSpace(text), ": ")
	if !found {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		t.Fatalf("Envoy's %s is %q: %v", name, value, err)
	}
	return n
}

// FlushLogs makes Envoy write what its access log still holds in memory.
func (e *Envoy) FlushLogs(t testing.TB) {
	t.Helper()
	r, err := pages.Post("http://"+e.Admin+"/reopen_logs", "", nil)
	if err != nil {
		t.Fatalf("flush Envoy's access log: %v", err)
	}
	r.Body.Close()
}

func (e *Envoy) listener(t testing.TB) string {
	t.Helper()
	var found struct {
		Statuses []struct {
			Address struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	text, err := e.get("/listeners?format=json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &found)
	}
	if err != nil || len(found.Statuses) == 0 {
		t.Fatalf("read Envoy's listeners: %v in %q", err, text)
	}
	return fmt.Sprintf("127.0.0.1:%d", found.Statuses[0].Address.Socket.Port)
}

func (e *Envoy) get(path string) (string, error) {
	r, err := pages.Get("http://" + e.Admin + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s: %s", path, r.Status, body)
	}
	return string(body), err
}
