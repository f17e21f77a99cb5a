// Command sidecar is the rate-limiting sidecar: it reads its settings from the environment and serves until SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spillway-mesh/spillway/sidecar"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // it could not start or broke while serving
	exitUsage = 2 // arguments or environment are wrong
)

func main() { os.Exit(run(os.Args, os.Environ(), os.Stdout, os.Stderr)) }

// run is the whole program.
func run(args, environ []string, stdout, stderr io.Writer) int {
	if len(args) < 2 {
		return serve(args[0], environ, stdout, stderr)
	}
	if len(args) == 3 && args[1] == "healthcheck" && args[2] == "live" {
		return healthcheck(args[0], "/livez", environ, stdout, stderr)
	}
	if len(args) == 2 {
		switch args[1] {
		case "-h", "-help", "--help", "help":
			fmt.Fprint(stdout, usage)
			return exitOK
		case "-v", "-version", "--version", "version":
			fmt.Fprintln(stdout, "spillway sidecar", version())
			return exitOK
		case "healthcheck":
			return healthcheck(args[0], "/readyz", environ, stdout, stderr)
		}
	}
	fmt.Fprintf(stderr, "%s: no such argument: %q\n\n%s", args[0], args[1:], usage)
	return exitUsage
}

// serve runs the sidecar until a signal.
func serve(program string, environ []string, stdout, stderr io.Writer) int {
	signal.Ignore(syscall.SIGPIPE) // a log whose reader has gone costs its lines, and not the process
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP) // one that comes early is kept until there are rules to read again
	cfg, err := settings.FromEnvironment(environ, program)
	if err != nil {
		fmt.Fprintf(stderr, "the environment is not usable:\n%v\n", err)
		return exitUsage
	}
	cfg.Version, cfg.Output = version(), stdout
	s, err := sidecar.New(cfg)
	if err != nil {
		fmt.Fprintf(stderr, "cannot start: %s\n", cfg.Conceal(err.Error()))
		return exitError
	}
	ctx, stop := untilSignal(signals, s.Reload)
	defer stop()
	err = errors.Join(s.Run(ctx), s.Close())
	if err != nil {
		fmt.Fprintf(stderr, "stopped: %v\n", err)
		return exitError
	}
	return exitOK
}

// untilSignal returns a context that ends with SIGTERM or SIGINT. A second one ends the process at once. SIGHUP calls
// reload.
func untilSignal(signals chan os.Signal, reload func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		for sig := range signals {
			if sig == syscall.SIGHUP {
				reload()
				continue
			}
			if ctx.Err() != nil {
				os.Exit(exitError)
			}
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}

// release is the version that `-ldflags "-X main.release=1.2.3"` sets.
var release string

// version is what this program was built from.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}
