package sidecar

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// listeners are the sockets of a sidecar. Those that are not asked for are nil.
type listeners struct{ grpc, uds, http, debug, metrics net.Listener }

// listen opens all sockets, or none. open opens those of TCP; nil: net.Listen.
func listen(cfg *settings.Config, open func(network, address string) (net.Listener, error)) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if open == nil {
		open = net.Listen
	}
	http, grpc, debug := cfg.Listen.Addresses()
	tcp := []struct {
		at       *net.Listener
		name     string
		variable string // which sets the port
		addr     string
		want     bool
	}{
		{&l.grpc, "gRPC", "GRPC_PORT", grpc, true},
		{&l.http, "HTTP", "PORT", http, true},
		{&l.debug, "debug", "DEBUG_PORT", debug, true},
		{&l.metrics, "metrics", "PROMETHEUS_ADDR", cfg.Metrics.Addr, cfg.Metrics.Prometheus && !cfg.Metrics.Disabled},
	}
	for _, t := range tcp {
		if !t.want {
			continue
		}
		*t.at, err = open("tcp", t.addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			return l, fmt.Errorf("listen for %s: %s is in use: set %s to a free port, or end the program that has it",
				t.name, t.addr, t.variable)
		}
		if err != nil {
			return l, fmt.Errorf("listen for %s: %w", t.name, err)
		}
	}
	if cfg.Listen.UDS != "" {
		l.uds, err = listenUnix(cfg.Listen.UDS, fs.FileMode(cfg.Listen.UDSMode))
	}
	return l, err
}

func (l listeners) close() {
	for _, one := range []net.Listener{l.grpc, l.uds, l.http, l.debug, l.metrics} {
		if one != nil {
			one.Close()
		}
	}
}

// listenUnix listens on a Unix socket. @name is an abstract one, without a file and a mode.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if strings.HasPrefix(path, "@") {
		l, err := net.Listen("unix", path)
		if err != nil {
			return nil, fmt.Errorf("listen on socket: %w", err)
		}
		return l, nil
	}
	err := removeStale(path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket: %w", err)
	}
	err = os.Chmod(path, mode)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("set the mode of the socket: %w", err)
	}
	return keepSuccessor(l.(*net.UnixListener), path), nil
}

// removeStale removes a socket that nothing answers on. Anything else that has the path stays.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is not a socket", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return fmt.Errorf("%s is in use by another process", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s is there, and whether anything listens on it is not known: %w", path, err)
	}
	err = os.Remove(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unixListener removes its socket when it closes, but only if the path still is that socket: a successor may have
// renamed its own over it.
type unixListener struct {
	*net.UnixListener
	path  string
	made  fs.FileInfo
	close sync.Once
}

func keepSuccessor(l *net.UnixListener, path string) net.Listener {
	l.SetUnlinkOnClose(false)
	made, err := os.Lstat(path)
	if err != nil {
		return l
	}
	return &unixListener{UnixListener: l, path: path, made: made}
}

// Close stops listening.
func (l *unixListener) Close() error {
	err := net.ErrClosed
	l.close.Do(func() {
		err = nil
		now, gone := os.Lstat(l.path)
		if gone == nil && os.SameFile(now, l.made) {
			err = os.Remove(l.path)
		}
		err = errors.Join(err, l.UnixListener.Close())
	})
	return err
}

// addresses are where the sockets listen.
func (l listeners) addresses() Addresses {
	text := func(one net.Listener) string {
		if one == nil {
			return ""
		}
		return one.Addr().String()
	}
	return Addresses{GRPC: text(l.grpc), UDS: text(l.uds), HTTP: text(l.http), Debug: text(l.debug),
		Metrics: text(l.metrics)}
}
