package main

import (
	"strings"
	"testing"
)

// envoyPages are the pages of an Envoy that is wired well.
func envoyPages() map[string]string {
	const typed = `{"typed_config":{` +
		`"@type":"type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit","domain":"shop",` +
		`"rate_limit_service":{"grpc_service":{"envoy_grpc":{"cluster_name":"spillway"}}}}}`
	const options = `"typed_extension_protocol_options":{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":` +
		`{"explicit_http_config":{"http2_protocol_options":{}}}}`
	return map[string]string{
		"/ready": "LIVE",
		"/config_dump": `{"configs":[{"static_listeners":[{"listener":{"filters":[` + typed + `]}}]},` +
			`{"routes":[{"rate_limits":[{"actions":[]}]}]},` +
			`{"static_clusters":[{"cluster":{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster",` +
			`"name":"spillway",` + options + `}}]}]}`,
		"/clusters": `{"cluster_statuses":[{"name":"spillway",` +
			`"host_statuses":[{"address":{"socket_address":{"address":"127.0.0.1","port_value":8081}},` +
			`"stats":[{"name":"cx_connect_fail","value":"2"},{"name":"cx_total","value":"5"}],` +
			`"health_status":{"eds_health_status":"HEALTHY"}}]}]}`,
		"/stats": `{"stats":[{"name":"cluster.app.ratelimit.error","value":0}]}`,
	}
}

// sidecarPages are those of a sidecar that works.
func sidecarPages() map[string]string {
	return map[string]string{
		"/v1/rules": `{"domains":[{"name":"shop"}]}`, "/v1/sidecars": `{"rules_agree":true,"sidecars":[{"id":"a",` +
			`"self":true}]}`,
		"/readyz": "ok\n",
		"/v1/config": `{"listens":{"grpc":"127.0.0.1:8081","http":"127.0.0.1:8080","debug":"127.0.0.1:6070",` +
			`"socket":"/run/spillway.sock"}}`,
	}
}

// another is a host of a cluster that is another sidecar, without its end.
const another = `{"address":{"socket_address":{"address":"127.0.0.1","port_value":8082}},"health_status":{}`

// TestDoctor breaks one thing at a time, and expects the one line about it.
func TestDoctor(t *testing.T) {
	for name, c := range map[string]struct{ page, old, new, want string }{
		"all is well": {"", "", "", ""},
		"no filter": {"/config_dump", "http.ratelimit.v3.RateLimit", "http.router.v3.Router",
			"no request reaches Spillway"},
		"no rate_limits": {"/config_dump", "rate_limits", "other", "no route has rate_limits"},
		"another domain": {"/config_dump", `"domain":"shop"`, `"domain":"shopp"`,
			`the domain "shopp" has no rules`},
		"no cluster": {"/config_dump", `"name":"spillway"`, `"name":"other"`,
			`the cluster "spillway", which a filter asks, does not exist`},
		"HTTP/1":  {"/config_dump", "http2_protocol_options", "http_protocol_options", "gRPC needs HTTP/2"},
		"no host": {"/clusters", "HEALTHY", "UNHEALTHY", "has no healthy host, of 1"},
		"the HTTP port": {"/clusters", "8081", "8080", "leads to 127.0.0.1:8080, the HTTP port of the sidecar: its " +
			"gRPC " +
			"port is 8081, so set port_value: 8081"},
		"the debug port": {"/clusters", "8081", "6070", "leads to 127.0.0.1:6070, the debug port of the sidecar"},
		"a port of nobody": {"/clusters", "8081", "8082", "leads to 127.0.0.1:8082, where the sidecar does not " +
			"listen: " +
			"its gRPC port is 8081"},
		"another address": {"/clusters", "127.0.0.1", "127.0.0.2", "leads to 127.0.0.2:8081, and the sidecar " +
			"listens for " +
			"gRPC at 127.0.0.1:8081 alone"},
		"another sidecar of the cluster": {"/clusters", `"host_statuses":[`, `"host_statuses":[` + another + "},", ""},
		"another that refuses": {"/clusters", `"host_statuses":[`, `"host_statuses":[` + another +
			`,"stats":[{"name":"cx_connect_fail","value":"3"},{"name":"cx_total","value":"3"}]},`,
			"leads to 127.0.0.1:8082, which took none of 3 connections"},
		"two of nobody": {"/clusters", `8081}},`, `8083}}},` + another + ",",
			"leads to 127.0.0.1:8083, where the sidecar does not listen"},
		"every interface": {"/v1/config", `"127.0.0.1:8081"`, `"[::]:8081"`, ""},
		"another machine": {"/clusters", "127.0.0.1", "192.0.2.1", ""},
		"another machine and its HTTP port": {"/clusters", `127.0.0.1","port_value":8081`,
			`192.0.2.1","port_value":8080`,
			"leads to 192.0.2.1:8080, the HTTP port of the sidecar"},
		"a proxy of another machine": {"/clusters", `127.0.0.1","port_value":8081}},"stats":[`,
			`192.0.2.1","port_value":8080}},"stats":[{"name":"rq_success","value":"7"},`, ""},
		"nobody takes connections": {"/clusters", `"value":"2"`, `"value":"5"`, "leads to 127.0.0.1:8081, which " +
			"took none of " +
			"5 connections: check that a sidecar listens for gRPC there; the one that was asked listens at " +
			"127.0.0.1:8081"},
		"the socket": {"/clusters", `"socket_address":{"address":"127.0.0.1","port_value":8081}`,
			`"pipe":{"path":"/run/spillway.sock"}`, ""},
		"another socket": {"/clusters", `"socket_address":{"address":"127.0.0.1","port_value":8081}`,
			`"pipe":{"path":"/tmp/a.sock"}`, "leads to /tmp/a.sock, and the socket of the sidecar is " +
				"/run/spillway.sock"},
		"an older sidecar":  {"/v1/config", "listens", "other", ""},
		"calls that failed": {"/stats", `"value":0`, `"value":12`, "cluster.app.ratelimit.error is 12"},
		"let through": {"/stats", `ratelimit.error","value":0`, `ratelimit.failure_mode_allowed","value":3`,
			"is 3: so many requests were let through"},
		"a short timeout":   {"/config_dump", `"domain"`, `"timeout":"0.005s","domain"`, "a filter waits 5ms"},
		"not Envoy":         {"/config_dump", "{", "<", "must be JSON"},
		"no rules":          {"/v1/rules", `{"name":"shop"}`, "", "it has no rules"},
		"rules that differ": {"/v1/sidecars", "true,", "false,", "their rules differ"},
		"another is degraded": {"/v1/sidecars", `"self":true`, `"degraded":["redis: away"]`, "is degraded: redis: " +
			"away"},
		"Redis": {"/readyz", "ok", "ok (degraded: redis: dial, breaker open; rules: a.yaml)", "redis  Redis cannot " +
			"be " +
			"reached, failed several times in a row\nrules  a.yaml\n"},
		"a wrong setting of Redis": {"/readyz", "ok", "ok (degraded: REDIS_TYPE: the server is not part of a " +
			"cluster; set it " +
			"to single)", "the server is not part of a cluster; set it to single"},
	} {
		envoy, sidecar := envoyPages(), sidecarPages()
		for _, pages := range []map[string]string{envoy, sidecar} {
			if pages[c.page] != "" {
				pages[c.page] = strings.ReplaceAll(pages[c.page], c.old, c.new)
			}
		}
		at := answering(t, sidecar)
		got := call("", "doctor", "--envoy", answering(t, envoy), "--server", at, "--http", at)
		want := exitFound
		if c.want == "" {
			want, c.want = exitOK, "nothing is wrong"
		}
		if got.code != want || !strings.Contains(got.out, c.want) {
			t.Errorf("%s: %+v, want %d with %q", name, got, want, c.want)
		}
	}
	got := call("", "doctor", "--envoy", "127.0.0.1:1", "--server", "127.0.0.1:1", "--http", "127.0.0.1:1", "-o",
		"json")
	if got.code != exitFound || strings.Count(got.out, `"finding"`) != 3 {
		t.Errorf("nothing answers: %+v", got)
	}
}
