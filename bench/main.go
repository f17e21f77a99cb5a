// Command bench compares the sidecar with the reference server, envoyproxy/ratelimit: the same rule file, the same
// Redis, the same requests, in rounds that take turns. `make bench` builds what it needs, prints tables, and writes
// RESULTS.md.
//
// BENCH_ROUNDS, BENCH_SECONDS, BENCH_CASES and BENCH_PARTS shorten or lengthen a run; README.md in this folder explains
// them. A run in which a decision was made without Redis is not a result: its ratios are left out and the exit code is
// 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// errNoResult ends a run that measured something else than decisions in Redis.
var errNoResult = errors.New("no result: see the lines in red")

func main() {
	// A child is killed when the thread that started it ends. The main thread ends last, so all children are started on
	// it.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the whole program: the load generator with the argument "load", else the comparison.
func run(ctx context.Context, args []string) error {
	if len(args) == 1 && args[0] == "load" {
		return serveLoad(ctx, os.Stdin, os.Stdout)
	}
	set, err := readSettings(os.Getenv)
	if err != nil {
		return err
	}
	return compare(ctx, set)
}
