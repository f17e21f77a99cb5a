package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// program runs the program in this process until it ends.
func program(environ []string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(append([]string{"sidecar"}, args...), environ, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHelp(t *testing.T) {
	for _, flag := range []string{"-h", "--help", "help"} {
		code, out, errs := program(nil, flag)
		if code != 0 || errs != "" || !strings.Contains(out, "REDIS_URL") {
			t.Errorf("%s = %d, %q, %q, want the help on standard output", flag, code, out, errs)
		}
	}
}

func TestVersion(t *testing.T) {
	code, out, _ := program(nil, "--version")
	if code != 0 || !strings.HasPrefix(out, "spillway sidecar ") {
		t.Errorf("--version = %d, %q", code, out)
	}
}

func TestUnknownArguments(t *testing.T) {
	for _, args := range [][]string{{"--nonsense"}, {"serve"}, {"--help", "more"}, {"healthcheck", "now"}} {
		code, out, errs := program(nil, args...)
		if code != 2 || out != "" || !strings.Contains(errs, args[0]) || !strings.Contains(errs, "Usage:") {
			t.Errorf("%q = %d, %q, %q, want 2 and the usage on standard error", args, code, out, errs)
		}
	}
}

func TestABadEnvironmentIsToldWhole(t *testing.T) {
	code, _, errs := program([]string{"PORT=x", "LOG_LEVEL=x"})
	if code != 2 || !strings.Contains(errs, "PORT: ") || !strings.Contains(errs, "LOG_LEVEL: ") {
		t.Errorf("a bad environment = %d, %q, want 2 and both variables", code, errs)
	}
}

func TestAPortThatIsTaken(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	taken := l.Addr().String()
	code, _, errs := program([]string{"PORT=0", "DEBUG_PORT=0", "GRPC_PORT=" + portOf(taken)})
	want := "cannot start: listen for gRPC: " + taken + " is in use: set GRPC_PORT "
	if code != 1 || !strings.Contains(errs, want) {
		t.Errorf("a port that is taken = %d, %q, want 1 and %q", code, errs, want)
	}
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

func TestSignals(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	must.Do(t, os.WriteFile(rules, []byte("domain: shop\ndescriptors: []\n"), 0o600))
	s := servers.StartSidecar(t, "RULES="+rules)
	s.Send(t, syscall.SIGHUP)
	servers.Await(t, "the second load", func() error {
		if strings.Count(s.Output(), "rules loaded") < 2 {
			return os.ErrNotExist
		}
		return nil
	})
	s.Send(t, syscall.SIGTERM)
	if code := s.Exit(t); code != 0 {
		t.Errorf("SIGTERM ends it with %d, want 0:\n%s", code, s.Output())
	}
	if strings.Contains(s.Output(), "cutting them off") {
		t.Errorf("calls were cut off though none was in flight:\n%s", s.Output())
	}
}

// TestTheReaderOfTheLogEnds closes the pipe that a sidecar's log goes to.
func TestTheReaderOfTheLogEnds(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := servers.StartSidecarInto(t, writer, "RULES="+t.TempDir())
	must.Do(t, reader.Close())
	s.Send(t, syscall.SIGHUP) // it logs what it read
	servers.Await(t, "a line that is lost", func() error {
		answer, err := http.Get("http://" + s.Debug + "/metrics")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && strings.Contains(string(text), "\nspillway_log_lines_lost_total 0\n") {
			err = errors.New("none is lost")
		}
		return err
	})
	s.Send(t, syscall.SIGTERM)
	if code := s.Exit(t); code != 0 {
		t.Errorf("it ends with %d, want 0", code)
	}
}

func TestASecondSignalEndsItAtOnce(t *testing.T) {
	s := servers.StartSidecar(t, "RULES="+t.TempDir(), "DRAIN_DELAY=1m")
	s.Send(t, syscall.SIGTERM)
	servers.Await(t, "the drain", func() error {
		if !strings.Contains(s.Output(), "draining") {
			return os.ErrNotExist
		}
		return nil
	})
	s.Send(t, syscall.SIGINT)
	if code := s.Exit(t); code != 1 {
		t.Errorf("the second signal ends it with %d, want 1", code)
	}
}
