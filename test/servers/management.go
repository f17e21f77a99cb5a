package servers

import (
	"context"
	"net"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	configv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
)

// ManagementNode is the node that a Management has resources for.
const ManagementNode = "envoy-ratelimit"

// Management is a management server of go-control-plane, with a snapshot of rate limit configurations for
// ManagementNode.
type Management struct {
	Addr   string
	server *grpc.Server
	cache  cachev3.SnapshotCache

	mu       sync.Mutex // guards requests
	requests []*discoveryv3.DiscoveryRequest
}

// StartManagement starts a management server that has nothing to send, at an address or, without one, at a free one. It
// stops when the test ends.
func StartManagement(t testing.TB, addr string, options ...grpc.ServerOption) *Management {
	t.Helper()
	if addr == "" {
		addr = FreeAddr(t)
	}
	m := &Management{Addr: addr, server: grpc.NewServer(options...), cache: cachev3.NewSnapshotCache(true,
		cachev3.IDHash{}, nil)}
	ads := serverv3.NewServer(context.Background(), m.cache, serverv3.CallbackFuncs{StreamRequestFunc: m.heard})
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(m.server, ads)
	socket, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("listen for the management server: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.server.Serve(socket) // it ends with Stop
	}()
	t.Cleanup(func() { m.Stop(); <-done })
	return m
}

// Stop cuts all streams and closes the port.
func (m *Management) Stop() { m.server.Stop() }

// Set replaces all resources.
func (m *Management) Set(t testing.TB, version string, configs ...*configv3.RateLimitConfig) {
	t.Helper()
	resources := []types.Resource{}
	for _, c := range configs {
		resources = append(resources, c)
	}
	snapshot, err := cachev3.NewSnapshot(version,
		map[resourcev3.Type][]types.Resource{resourcev3.RateLimitConfigType: resources})
	if err == nil {
		err = m.cache.SetSnapshot(context.Background(), ManagementNode, snapshot)
	}
	if err != nil {
		t.Fatalf("set a snapshot: %v", err)
	}
}

func (m *Management) heard(_ int64, r *discoveryv3.DiscoveryRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, r)
	return nil
}

// Requests are all that clients sent so far.
func (m *Management) Requests() []*discoveryv3.DiscoveryRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*discoveryv3.DiscoveryRequest(nil), m.requests...)
}
