package main

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// wiring is what Envoy's configuration has about Spillway.
type wiring struct {
	asks     map[string]bool   // clusters that filters ask
	domains  map[string]bool   // domains that filters and routes name
	clusters map[string]object // configurations by name
	limits   bool              // a rate limit filter asks
	routes   bool              // a route has rate_limits
}

// checkEnvoy checks the filters, routes and clusters of Envoy, and what its counters have seen.
func (d *doctor) checkEnvoy(at string) {
	_, err := d.page(at, "/ready")
	var r *refusal
	if err != nil && !errors.As(err, &r) {
		d.wrong("envoy", "%v; --envoy names its admin port", err)
		return
	}
	if err != nil {
		d.wrong("envoy", "it is not ready: %v", err)
	}
	config, err := d.dump(at, "/config_dump")
	if err != nil {
		d.wrong("envoy", "%v", err)
		return
	}
	w := &wiring{asks: map[string]bool{}, domains: map[string]bool{}, clusters: map[string]object{}}
	w.read(config)
	if len(w.asks) == 0 {
		d.wrong("envoy", "no listener has a rate limit or ext_authz filter that asks a cluster: no request reaches Spillway")
		return
	}
	if w.limits && !w.routes {
		d.wrong("envoy", "no route has rate_limits: the rate limit filter asks about no request")
	}
	for _, domain := range slices.Sorted(maps.Keys(w.domains)) {
		if d.domains != nil && !d.domains[domain] {
			d.wrong("envoy", "the domain %q has no rules in the sidecar: nothing is limited in it", domain)
		}
	}
	d.checkClusters(at, w)
	d.checkCounters(at)
}

// read walks through the configuration.
func (w *wiring) read(value any) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			w.read(one)
		}
	case object:
		w.note(v)
		for _, one := range v {
			w.read(one)
		}
	}
}

// note keeps what one object of the configuration has.
func (w *wiring) note(o object) {
	kind := text(o, "@type")
	filter := strings.HasSuffix(kind, ".ratelimit.v3.RateLimit")
	w.limits = w.limits || filter
	for _, service := range []string{"grpc_service", "rate_limit_service.grpc_service"} {
		name := text(o, service+".envoy_grpc.cluster_name")
		if name != "" && (filter || strings.HasSuffix(kind, ".ext_authz.v3.ExtAuthz")) {
			w.asks[name] = true
		}
	}
	if domain := text(o, "domain"); domain != "" && (filter || strings.HasSuffix(kind, ".RateLimitPerRoute")) {
		w.domains[domain] = true
	}
	if list, _ := o["rate_limits"].([]any); len(list) > 0 {
		w.routes = true
	}
	if strings.HasSuffix(kind, ".cluster.v3.Cluster") {
		w.clusters[text(o, "name")] = o
	}
}

// checkClusters checks the clusters that filters ask.
func (d *doctor) checkClusters(at string, w *wiring) {
	status, err := d.dump(at, "/clusters?format=json")
	if err != nil {
		d.wrong("envoy", "%v", err)
		return
	}
	hosts := map[string][]object{}
	for _, c := range objects(status, "cluster_statuses") {
		hosts[text(c, "name")] = objects(c, "host_statuses")
	}
	for _, name := range slices.Sorted(maps.Keys(w.asks)) {
		c := w.clusters[name]
		if c == nil {
			d.wrong("envoy", "the cluster %q, which a filter asks, does not exist", name)
			continue
		}
		if !speaksHTTP2(c) {
			d.wrong("envoy", "the cluster %q must have http2_protocol_options: gRPC needs HTTP/2", name)
		}
		healthy := 0
		for _, host := range hosts[name] {
			if ailment := unhealthy(inner(host, "health_status")); ailment == "" {
				healthy++
			}
		}
		if healthy == 0 {
			d.wrong("envoy", "the cluster %q has no healthy host, of %d", name, len(hosts[name]))
		}
	}
}

// speaksHTTP2 reports whether the options of a cluster are not those of HTTP/1 alone.
func speaksHTTP2(c object) bool {
	if c["http2_protocol_options"] != nil {
		return true
	}
	for _, options := range inner(c, "typed_extension_protocol_options") {
		o, _ := options.(object)
		if inner(o, "explicit_http_config")["http2_protocol_options"] != nil || o["auto_config"] != nil {
			return true
		}
	}
	return false
}

// unhealthy is why Envoy sends nothing to a host, empty where it does.
func unhealthy(status object) string {
	if eds := text(status, "eds_health_status"); eds != "" && eds != "HEALTHY" && eds != "UNKNOWN" {
		return eds
	}
	for _, name := range []string{"failed_active_health_check", "failed_outlier_check", "pending_active_hc"} {
		if isTrue(status, name) {
			return name
		}
	}
	return ""
}

// checkCounters checks what Envoy has counted since its start.
func (d *doctor) checkCounters(at string) {
	o, err := d.dump(at, `/stats?format=json&usedonly&filter=(ratelimit|ext_authz)\.error$`)
	if err != nil {
		d.wrong("envoy", "%v", err)
		return
	}
	for _, one := range objects(o, "stats") {
		if n := text(one, "value"); n != "" && n != "0" {
			d.wrong("envoy", "%s is %s: that often Spillway did not answer in time, or not at all", text(one, "name"), n)
		}
	}
}
