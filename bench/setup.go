package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// program is one of the servers that are compared.
type program struct {
	name string // in tables
	bin  string
	env  []string // what it gets beyond what both get
	self func(debug string) (self, error)
}

const (
	spillway  = "Spillway"
	reference = "reference"
	base      = "base"         // the sidecar that BENCH_BASE names
	unleased  = "LEASES=false" // the sidecar with this setting
	unlimited = "no limit"     // the sidecar behind an Envoy that does not ask it
)

// programs are both servers, and the base between them where there is one. The reference server would write a line of
// JSON for each call, or send to a statsd that is not there: without its statistics it is at its best. The sidecar
// keeps its metrics, which are on by default.
func programs(set settings) []program {
	quiet := append([]string{"DISABLE_STATS=true", "RUNTIME_WATCH_ROOT=false"}, set.ReferenceEnv...)
	all := []program{{reference, set.Reference, quiet, ofReference}}
	if set.Base != "" {
		all = append(all, program{base, set.Base, set.SidecarEnv, ofSidecar})
	}
	return append(all, program{spillway, set.Sidecar, set.SidecarEnv, ofSidecar})
}

// leasePrograms are the sidecar without leases and as it is.
func leasePrograms(set settings) []program {
	return []program{
		{unleased, set.Sidecar, slices.Concat(set.SidecarEnv, []string{unleased}), ofSidecar},
		{spillway, set.Sidecar, set.SidecarEnv, ofSidecar},
	}
}

// node is one server of a setup.
type node struct {
	*process
	grpc, debug string // host:port
}

// setup is some servers of one program that share Redis.
type setup struct {
	program
	folder string
	size   int
	redis  *redisServer
	nodes  []node
}

// startSetup starts servers that read the same rule files, and waits until they are healthy.
func startSetup(ctx context.Context, f *setup, rules ruleFiles) error {
	config := filepath.Join(f.folder, f.name, "config")
	err := os.RemoveAll(config)
	if err == nil {
		err = os.MkdirAll(config, 0o755)
	}
	if err != nil {
		return err
	}
	for name, text := range rules {
		err = os.WriteFile(filepath.Join(config, name+".yaml"), []byte(text), 0o644)
		if err != nil {
			return err
		}
	}
	return f.start(ctx)
}

// start starts the servers, whose rule files are there.
func (f *setup) start(ctx context.Context) error {
	for i := range f.size {
		n, err := startNode(ctx, f.folder, f.program, i, f.redis)
		if err != nil {
			f.stop()
			return err
		}
		f.nodes = append(f.nodes, n)
	}
	return nil
}

func startNode(ctx context.Context, folder string, p program, i int, redis *redisServer) (node, error) {
	ports, err := freePorts(3)
	if err != nil {
		return node{}, err
	}
	env := slices.Concat(shared(folder, p.name, redis.addr), []string{"PORT=" + ports[0], "GRPC_PORT=" + ports[1],
		"DEBUG_PORT=" + ports[2]}, p.env)
	n := node{grpc: "127.0.0.1:" + ports[1], debug: "127.0.0.1:" + ports[2]}
	n.process, err = startProcess(folder, fmt.Sprintf("%s-%d", p.name, i+1), p.bin, env)
	if err != nil {
		return node{}, err
	}
	err = n.await(ctx, func() error {
		_, err := fetch("http://127.0.0.1:" + ports[0] + "/healthcheck")
		if err == nil {
			_, err = p.self(n.debug)
		}
		return err
	})
	if err != nil {
		n.stop()
		return node{}, err
	}
	return n, nil
}

// shared is the environment of both servers: where to listen, where the rules are, where Redis is. All else is their
// default.
func shared(folder, name, redis string) []string {
	return []string{
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"RUNTIME_ROOT=" + folder, "RUNTIME_SUBDIRECTORY=" + name,
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
	}
}

// stop ends all servers.
func (f *setup) stop() {
	for _, n := range f.nodes {
		n.stop()
	}
	f.nodes = nil
}

// targets are the addresses that calls go to.
func (f *setup) targets() []string {
	var all []string
	for _, n := range f.nodes {
		all = append(all, n.grpc)
	}
	return all
}
