package main

import (
	"encoding/json"
	"net"
	nethttp "net/http"
	"strings"
	"testing"

	testmust "github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// bootstrap is an Envoy that asks a sidecar about each request, and answers the others itself.
const bootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route: {cluster: app, rate_limits: [{actions: [{generic_key: {descriptor_value: any}}]}]}
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: shop
              timeout: 60s
              rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: spillway}}}
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: app
    load_assignment:
      cluster_name: app
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]
  - name: spillway
    http2_protocol_options: {}
    load_assignment:
      cluster_name: spillway
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: HOST, port_value: GRPC}}}}]}]
`

// listensAt are the ports of a sidecar.
func listensAt(t *testing.T, at string) (grpc, http, debug string) {
	t.Helper()
	var view struct {
		Listens struct{ GRPC, HTTP, Debug string }
	}
	got := testmust.Get(nethttp.Get(at + "/v1/config"))(t)
	defer got.Body.Close()
	testmust.Do(t, json.NewDecoder(got.Body).Decode(&view))
	port := func(address string) string {
		_, port, err := net.SplitHostPort(address)
		testmust.Do(t, err)
		return port
	}
	return port(view.Listens.GRPC), port(view.Listens.HTTP), port(view.Listens.Debug)
}

// TestDoctorAsksARealEnvoy finds nothing wrong with one that is wired well, and all that is wrong with others.
func TestDoctorAsksARealEnvoy(t *testing.T) {
	at := operated(t, nil)
	grpc, http, debug := listensAt(t, at)
	nobody := servers.FreeAddr(t)[len("127.0.0.1:"):]
	for _, c := range []struct {
		name, port string
		changes    []string
		want       []string
	}{
		{"wired well", grpc, nil, []string{"nothing is wrong"}},
		{"the HTTP port", http, nil, []string{`the cluster "spillway" leads to 127.0.0.1:` + http + ", the HTTP " +
			"port of the " +
			"sidecar: its gRPC port is " + grpc + ", so set port_value: " + grpc}},
		{"the debug port", debug, nil, []string{", the debug port of the sidecar: its gRPC port is " + grpc}},
		{"a port of nobody", nobody, nil, []string{"leads to 127.0.0.1:" + nobody + ", where the sidecar does not " +
			"listen: " +
			"its gRPC port is " + grpc}},
		{"another address", grpc, []string{"HOST", "127.0.0.2"}, []string{"leads to 127.0.0.2:" + grpc + ", and " +
			"the sidecar " +
			"listens for gRPC at 127.0.0.1:" + grpc + " alone: set address: 127.0.0.1, or GRPC_HOST"}},
		{"everything wrong", grpc, []string{"domain: shop", "domain: shopp", "timeout: 60s", "timeout: 0.001s",
			"    http2_protocol_options: {}\n", ""},
			[]string{`the domain "shopp" has no rules`, "a filter waits 1ms",
				"gRPC needs HTTP/2", "ratelimit.error is ",
				"ratelimit.failure_mode_allowed is "}},
		{"no such cluster", grpc, []string{"cluster_name: spillway}}}", "cluster_name: none}}}"},
			[]string{`the cluster "none", which a filter asks, does not exist`}},
		{"no rate_limits", grpc, []string{"rate_limits: [{actions: [{generic_key: {descriptor_value: any}}]}]",
			"timeout: 1s"}, []string{"no route has rate_limits"}},
		{"no host", grpc, []string{"endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: " +
			"HOST, port_value: GRPC}}}}]}]", "endpoints: []"},
			[]string{`the cluster "spillway" has no healthy host`}},
	} {
		config := strings.NewReplacer(c.changes...).Replace(bootstrap)
		envoy := servers.StartEnvoy(t, strings.NewReplacer("GRPC", c.port, "HOST", "127.0.0.1").Replace(config))
		if len(c.want) > 1 {
			testmust.Get(nethttp.Get("http://" + envoy.Addr))(t).Body.Close()
		}
		got := call("", "doctor", "--envoy", envoy.Admin, "--server", at, "--http", "none")
		for _, want := range c.want {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s: %q is missing:\n%s%s", c.name, want, got.out, got.errors)
			}
		}
		if lines := strings.Count(got.out, "\n"); lines > len(c.want)+1 {
			t.Errorf("%s: more than that is found wrong:\n%s", c.name, got.out)
		}
	}
}

// TestDoctorSeesAPortThatNobodyListensOn by what Envoy has counted, also where the sidecar does not answer.
func TestDoctorSeesAPortThatNobodyListensOn(t *testing.T) {
	nobody := servers.FreeAddr(t)
	config := strings.NewReplacer("GRPC", nobody[len("127.0.0.1:"):], "HOST", "127.0.0.1").Replace(bootstrap)
	envoy := servers.StartEnvoy(t, config)
	testmust.Get(nethttp.Get("http://" + envoy.Addr))(t).Body.Close()
	got := call("", "doctor", "--envoy", envoy.Admin, "--server", "127.0.0.1:1", "--http", "none")
	want := `the cluster "spillway" leads to ` + nobody + ", which took none of 1 connection: check that a sidecar " +
		"listens " +
		"for gRPC there\n"
	if got.code != exitFound || !strings.Contains(got.out, want) {
		t.Errorf("%q is missing:\n%s%s", want, got.out, got.errors)
	}
}
