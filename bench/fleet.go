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
	unleased  = "LEASES=false" // the sidecar with this setting
)

// programs are both servers. The reference server would write a line of JSON for each call, or send to a statsd that is not there:
// without its statistics it is at its best. The sidecar keeps its metrics, which are on by default.
func programs(set settings) []program {
	return []program{
		{reference, set.Reference, append([]string{"DISABLE_STATS=true", "RUNTIME_WATCH_ROOT=false"}, set.ReferenceEnv...), ofReference},
		{spillway, set.Sidecar, set.SidecarEnv, ofSidecar},
	}
}

// leasePrograms are the sidecar without leases and as it is.
func leasePrograms(set settings) []program {
	return []program{
		{unleased, set.Sidecar, slices.Concat(set.SidecarEnv, []string{unleased}), ofSidecar},
		{spillway, set.Sidecar, set.SidecarEnv, ofSidecar},
	}
}

// node is one server of a fleet.
type node struct {
	*process
	grpc, debug string // host:port
}

// fleet is some servers of one program that share Redis.
type fleet struct {
	program
	nodes []node
}

// startFleet starts servers that read one rule file, and waits until they are healthy.
func startFleet(ctx context.Context, folder string, p program, size int, rules string, redis *redisServer) (*fleet, error) {
	f := &fleet{program: p}
	config := filepath.Join(folder, p.name, "config")
	err := os.MkdirAll(config, 0o755)
	if err != nil {
		return nil, err
	}
	err = os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(rules), 0o644)
	if err != nil {
		return nil, err
	}
	for i := range size {
		n, err := startNode(ctx, folder, p, i, redis)
		if err != nil {
			f.stop()
			return nil, err
		}
		f.nodes = append(f.nodes, n)
	}
	return f, nil
}

func startNode(ctx context.Context, folder string, p program, i int, redis *redisServer) (node, error) {
	ports, err := freePorts(3)
	if err != nil {
		return node{}, err
	}
	env := slices.Concat(shared(folder, p.name, redis.addr), []string{"PORT=" + ports[0], "GRPC_PORT=" + ports[1], "DEBUG_PORT=" + ports[2]}, p.env)
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

// shared is the environment of both servers: where to listen, where the rules are, where Redis is. All else is their default.
func shared(folder, name, redis string) []string {
	return []string{
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"RUNTIME_ROOT=" + folder, "RUNTIME_SUBDIRECTORY=" + name,
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
	}
}

// stop ends all servers.
func (f *fleet) stop() {
	for _, n := range f.nodes {
		n.stop()
	}
}

// targets are the addresses that calls go to.
func (f *fleet) targets() []string {
	var all []string
	for _, n := range f.nodes {
		all = append(all, n.grpc)
	}
	return all
}
