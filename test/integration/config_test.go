package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func exampleFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(servers.Root(t), "examples", "envoy", "envoy.yaml")
}

// exampleConfig is the example's bootstrap with this test's addresses.
func exampleConfig(t testing.TB, app, spillway, timeout, log string) string {
	t.Helper()
	return rewritten(t, exampleFile(t), append(addresses(app, spillway, log),
		[2]string{" timeout: 0.025s", " timeout: " + timeout}))
}

// addresses are the changes that put this test's addresses in place of an example's. Each try may take as long as its
// call.
func addresses(app, spillway, log string) [][2]string {
	return [][2]string{
		{"{socket_address: {address: 127.0.0.1, port_value: 9901}}", socketAddress("127.0.0.1:0")},
		{"{socket_address: {address: 0.0.0.0, port_value: 10000}}", socketAddress("127.0.0.1:0")},
		{"{socket_address: {address: 127.0.0.1, port_value: 8000}}", socketAddress(app)},
		{"{socket_address: {address: 127.0.0.1, port_value: 8081}}", spillway},
		{"path: /dev/stdout", "path: " + log},
		{"max_interval: 5s", "max_interval: 60s"},
	}
}

// rewritten is an example with some places changed. Each must be there exactly once, so that the example cannot drift
// away from what is tested.
func rewritten(t testing.TB, file string, changes [][2]string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read the example: %v", err)
	}
	config := string(text)
	for _, change := range changes {
		if n := strings.Count(config, change[0]); n != 1 {
			t.Fatalf("the example has %q %d times, want once", change[0], n)
		}
		config = strings.Replace(config, change[0], change[1], 1)
	}
	return config
}

// socketAddress is an address as Envoy's configuration writes it.
func socketAddress(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("{socket_address: {address: %s, port_value: %s}}", host, port)
}

func TestExampleIsValid(t *testing.T) {
	servers.ValidateEnvoy(t, exampleFile(t))
}

// Envoy accepts a rate limit service at a cluster that does not exist, and then lets everything through.
func TestExampleNamesItsOwnCluster(t *testing.T) {
	text := must.Get(os.ReadFile(exampleFile(t)))(t)
	named := regexp.MustCompile(`envoy_grpc: \{cluster_name: ([a-z]+)`).FindStringSubmatch(string(text))
	if named == nil {
		t.Fatal("the example names no cluster for the rate limit service")
	}
	if !strings.Contains(string(text), "\n  - name: "+named[1]+"\n") {
		t.Errorf("the example has no cluster %q", named[1])
	}
}
