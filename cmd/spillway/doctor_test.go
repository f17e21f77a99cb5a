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
			`"host_statuses":[{"health_status":{"eds_health_status":"HEALTHY"}}]}]}`,
		"/stats": `{"stats":[{"name":"cluster.app.ratelimit.error","value":0}]}`,
	}
}

// sidecarPages are those of a sidecar that works.
func sidecarPages() map[string]string {
	return map[string]string{
		"/v1/rules": `{"domains":[{"name":"shop"}]}`, "/v1/sidecars": `{"rules_agree":true,"sidecars":[{"id":"a",` +
			`"self":true}]}`,
		"/readyz": "ok\n",
	}
}

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
		"HTTP/1":            {"/config_dump", "http2_protocol_options", "http_protocol_options", "gRPC needs HTTP/2"},
		"no host":           {"/clusters", "HEALTHY", "UNHEALTHY", "has no healthy host, of 1"},
		"calls that failed": {"/stats", `"value":0`, `"value":12`, "cluster.app.ratelimit.error is 12"},
		"let through": {"/stats", `ratelimit.error","value":0`, `ratelimit.failure_mode_allowed","value":3`,
			"is 3: so many requests were let through"},
		"a short timeout":     {"/config_dump", `"domain"`, `"timeout":"0.005s","domain"`, "a filter waits 5ms"},
		"not Envoy":           {"/config_dump", "{", "<", "must be JSON"},
		"no rules":            {"/v1/rules", `{"name":"shop"}`, "", "it has no rules"},
		"rules that differ":   {"/v1/sidecars", "true,", "false,", "their rules differ"},
		"another is degraded": {"/v1/sidecars", `"self":true`, `"degraded":["redis: away"]`, "is degraded: redis: away"},
		"Redis":               {"/readyz", "ok", "ok (degraded: redis: connection refused; rules: a.yaml)", "redis"},
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
