package main

import (
	"net/http"
	"strings"
	"testing"

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
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: GRPC}}}}]}]
`

// TestDoctorAsksARealEnvoy finds nothing wrong with one that is wired well, and all that is wrong with others.
func TestDoctorAsksARealEnvoy(t *testing.T) {
	at := operated(t, nil)
	for _, c := range []struct {
		name, port string
		changes    []string
		want       []string
	}{
		{"wired well", "1", nil, []string{"nothing is wrong"}},
		{"everything wrong", "1", []string{"domain: shop", "domain: shopp", "timeout: 60s", "timeout: 0.001s",
			"    http2_protocol_options: {}\n", ""},
			[]string{`the domain "shopp" has no rules`, "a filter waits 1ms",
				"gRPC needs HTTP/2", "ratelimit.error is ",
				"ratelimit.failure_mode_allowed is "}},
		{"no such cluster", "1", []string{"cluster_name: spillway}}}", "cluster_name: none}}}"},
			[]string{`the cluster "none", which a filter asks, does not exist`}},
		{"no rate_limits", "1", []string{"rate_limits: [{actions: [{generic_key: {descriptor_value: any}}]}]",
			"timeout: 1s"}, []string{"no route has rate_limits"}},
		{"no host", "1", []string{"endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: " +
			"127.0.0.1, port_value: GRPC}}}}]}]", "endpoints: []"},
			[]string{`the cluster "spillway" has no healthy host`}},
	} {
		config := strings.NewReplacer(c.changes...).Replace(bootstrap)
		envoy := servers.StartEnvoy(t, strings.ReplaceAll(config, "GRPC", c.port))
		if c.name == "everything wrong" {
			answer, err := http.Get("http://" + envoy.Addr)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
		}
		got := call("", "doctor", "--envoy", envoy.Admin, "--server", at, "--http", "none")
		for _, want := range c.want {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s: %q is missing:\n%s%s", c.name, want, got.out, got.errors)
			}
		}
		if lines := strings.Count(got.out, "\n"); c.name != "everything wrong" && lines > 2 {
			t.Errorf("%s: more than that is found wrong:\n%s", c.name, got.out)
		}
	}
}
