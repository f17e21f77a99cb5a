// Command demo runs examples/envoy/docker-compose.yaml without Docker: Envoy, the sidecars, Redis and the upstream as processes
// of this machine, on loopback, from the same files with hosts and ports replaced. Prometheus, Grafana and the tracing are left
// out. It needs the programs that `make tools` and `make build` put there.
//
// SIGUSR1 takes Redis away, SIGUSR2 brings it back, SIGINT (Ctrl-C) or SIGTERM ends everything.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	err := run(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run is the whole program. It is started at the top of the repository.
func run(out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switches := make(chan os.Signal, 8)
	signal.Notify(switches, syscall.SIGUSR1, syscall.SIGUSR2)
	programs, err := findPrograms()
	if err != nil {
		return err
	}
	compose, err := ReadCompose(filepath.Join("examples", "envoy", "docker-compose.yaml"), os.LookupEnv)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "spillway-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	plan, err := NewPlan(compose, programs, folder)
	if err != nil {
		return err
	}
	world, err := StartWorld(ctx, plan)
	if err != nil {
		return err
	}
	defer world.Stop()
	tell(out, world)
	return world.obey(ctx, switches, out)
}

// findPrograms looks for what `make tools` and `make build` install.
func findPrograms() (Programs, error) {
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		return Programs{}, fmt.Errorf("redis-server is missing (make demo-tools): %w", err)
	}
	p := Programs{Redis: redis, Envoy: os.Getenv("ENVOY_BIN"), Sidecar: os.Getenv("SIDECAR_BIN")}
	if p.Envoy == "" {
		p.Envoy = filepath.Join(".tools", "envoy", "envoy")
	}
	if p.Sidecar == "" {
		p.Sidecar = filepath.Join("bin", "sidecar")
	}
	for _, file := range []string{p.Envoy, p.Sidecar} {
		_, err := os.Stat(file)
		if err != nil {
			return Programs{}, fmt.Errorf("a program is missing (make demo-tools build): %w", err)
		}
	}
	return p, nil
}

// obey switches Redis off and on until the context, or an end that was not asked for, ends the demo.
func (w *World) obey(ctx context.Context, switches <-chan os.Signal, out io.Writer) error {
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintln(out, "Stopping.")
			return nil
		case p := <-w.ended:
			if !p.told {
				return fmt.Errorf("%s ended:\n%s", p.name, w.tail(p.name))
			}
		case s := <-switches:
			if s == syscall.SIGUSR1 {
				w.Off("redis")
				fmt.Fprintln(out, "Redis is off.")
				continue
			}
			err := w.On(ctx, "redis")
			if err != nil {
				return err
			}
			fmt.Fprintln(out, "Redis is on.")
		}
	}
}

// tell says where things are and what to do with them. The lines that begin with ENVOY= are for pasting into a shell.
func tell(out io.Writer, w *World) {
	at := w.plan.At
	fmt.Fprintf(out, "Envoy, two sidecars, Redis and an upstream run as in examples/envoy/docker-compose.yaml:\n\n")
	for _, c := range w.children {
		fmt.Fprintf(out, "  %-10s pid %-7d %v\n", c.Name, c.pid, c.Open)
	}
	fmt.Fprintf(out, "\n  limited by x-user      http://%s/rls\n", at("envoy", 10000))
	fmt.Fprintf(out, "  limited by x-api-key   http://%s/authz\n", at("envoy", 10000))
	fmt.Fprintf(out, "  Envoy's admin page     http://%s\n", at("envoy", 9901))
	fmt.Fprintf(out, "  live pages             http://%s and http://%s\n", at("sidecar-1", 6070), at("sidecar-2", 6070))
	fmt.Fprintf(out, "  metrics                http://%s/metrics and http://%s/metrics\n", at("sidecar-1", 6070), at("sidecar-2", 6070))
	fmt.Fprintf(out, "  logs                   %s\n", w.plan.folder)
	where := fmt.Sprintf("ENVOY=%s SIDECARS='%s %s'", at("envoy", 10000), at("sidecar-1", 6070), at("sidecar-2", 6070))
	fmt.Fprintf(out, "\nTry in another terminal:\n\n%s examples/envoy/try.sh\n", where)
	fmt.Fprintf(out, "%s REDIS_OFF='kill -USR1 %d' REDIS_ON='kill -USR2 %[2]d' examples/envoy/outage.sh\n", where, os.Getpid())
	fmt.Fprintf(out, "%s examples/envoy/operate.sh\n", where)
	fmt.Fprintf(out, "\nOr ask a sidecar yourself:\n\nexport SPILLWAY_SERVER=http://%s\nbin/spillway top --fleet\n", at("sidecar-1", 6070))
	fmt.Fprintf(out, "\nCtrl-C ends it all.\n")
}
