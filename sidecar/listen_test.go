package sidecar

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// stale leaves a socket behind that nothing listens on.
func stale(t *testing.T, path string) {
	t.Helper()
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestASocketGetsItsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := must.Get(listenUnix(path, 0o660))(t)
	defer l.Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode of the socket = %v, %v, want 0660", info.Mode(), err)
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale(t, path)
	l, err := listenUnix(path, 0o666)
	if err != nil {
		t.Fatalf("listen over a stale socket: %v", err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	c.Close()
}

func TestASocketInUseStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	other := must.Get(net.Listen("unix", path))(t)
	defer other.Close()
	_, err := listenUnix(path, 0o666)
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("listen on a socket in use = %v", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the other's socket is gone: %v", err)
	}
	c.Close()
}

func TestAFileThatIsNoSocketStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	write(t, path, "precious")
	_, err := listenUnix(path, 0o666)
	if err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("listen on a file = %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "precious" {
		t.Errorf("the file holds %q", text)
	}
}

func TestTheSocketGoesWithTheListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := must.Get(listenUnix(path, 0o666))(t)
	l.Close()
	_, err := os.Lstat(path)
	if !os.IsNotExist(err) {
		t.Errorf("after Close the socket is still there: %v", err)
	}
}

func TestASuccessorsSocketStays(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	old := must.Get(listenUnix(path, 0o666))(t)
	fresh := must.Get(listenUnix(filepath.Join(dir, "next"), 0o666))(t)
	defer fresh.(*unixListener).UnixListener.Close()
	must.Do(t, os.Rename(filepath.Join(dir, "next"), path))
	old.Close()
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		t.Errorf("the successor's socket: %v, %v", info, err)
	}
}
