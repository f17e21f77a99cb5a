package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newDoctor() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find what is wired wrong between Envoy, the sidecar and Redis", Args: between(0, 0),
		Long: `doctor asks Envoy's admin port, and the sidecar, by its readiness also about Redis. It prints one line
for each thing that is wrong: a filter, route or cluster that is missing in Envoy, a cluster that leads to another
address or port than the sidecar's for gRPC, a domain without rules, a timeout that is too short, calls that fail or
were let through, a sidecar that is not ready, what works worse than it should, and rules that differ between sidecars.

It exits with 1 if something is wrong.`,
		Example:           "  spillway doctor\n  spillway doctor --envoy 127.0.0.1:15000 --server 127.0.0.1:9182",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              diagnose,
	}
	cmd.Flags().String("envoy", "127.0.0.1:9901", "the admin port of Envoy; none: do not ask it")
	cmd.Flags().String("http", "127.0.0.1:8080",
		"the HTTP port of the sidecar, which has its readiness; none: do not ask it")
	return cmd
}

// doctor collects what is wrong.
type doctor struct {
	*session
	findings  []object
	domains   map[string]bool // with rules; nil: unknown
	listening object          // where the sidecar listens; nil: unknown
}

func diagnose(cmd *cobra.Command, _ []string) error {
	s, err := start(cmd, sidecarAPI)
	if err != nil {
		return err
	}
	d := &doctor{session: s}
	d.checkRules()
	d.askListening()
	if at := s.flag("http"); at != "none" {
		d.checkReadiness(at)
	}
	d.checkSidecars()
	if at := s.flag("envoy"); at != "none" {
		d.checkEnvoy(at)
	}
	if len(d.findings) == 0 && !s.data() {
		s.line("nothing is wrong")
		return nil
	}
	err = s.list("findings", d.findings, columns("PART part | WHAT IS WRONG finding"))
	if err == nil && len(d.findings) > 0 {
		err = exit(exitFound)
	}
	return err
}

// wrong adds a finding.
func (d *doctor) wrong(part, format string, args ...any) {
	d.findings = append(d.findings, object{"part": part, "finding": fmt.Sprintf(format, args...)})
}

// checkRules checks that the sidecar answers and has rules.
func (d *doctor) checkRules() {
	o := d.get("/v1/rules", nil)
	if d.err != nil {
		d.wrong("sidecar", "%v", d.err)
		d.err = nil
		return
	}
	d.domains = map[string]bool{}
	for _, one := range objects(o, "domains") {
		d.domains[text(one, "name")] = true
	}
	if len(d.domains) == 0 {
		d.wrong("sidecar", "it has no rules, so nothing is limited: set RULES, or publish some")
	}
}

// checkReadiness checks that the sidecar takes requests, and what works worse than it should, such as Redis.
func (d *doctor) checkReadiness(at string) {
	body, err := d.page(at, "/readyz")
	var r *refusal
	switch {
	case errors.As(err, &r) && r.status == http.StatusServiceUnavailable:
		d.wrong("sidecar", "it is not ready: %s", strings.TrimSpace(string(body)))
		return
	case err != nil:
		where := ""
		if d.listening != nil {
			where = ", which is " + text(d.listening, "http")
		}
		d.wrong("sidecar", "%v; --http names its HTTP port%s", err, where)
		return
	}
	_, list, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(string(body)), ")"), "(degraded: ")
	for _, one := range strings.Split(troubleBegins.ReplaceAllString(list, "\n$1"), "\n") {
		if part, what, found := strings.Cut(one, ": "); found {
			d.wrong(part, "%s", outage(what))
		} else if one != "" {
			d.wrong("sidecar", "%s", one)
		}
	}
}

// troubleBegins is where one trouble of /readyz ends and the next begins; a text may hold a semicolon, too.
var troubleBegins = regexp.MustCompile(`; (\w+: )`)

// checkSidecars compares the sidecars that share the store.
func (d *doctor) checkSidecars() {
	o := d.get("/v1/sidecars", nil)
	if d.err != nil {
		if d.domains != nil { // else the sidecar does not answer at all
			d.wrong("sidecars", "%v", d.err)
		}
		d.err = nil
		return
	}
	if !isTrue(o, "rules_agree") {
		d.wrong("sidecars", "their rules differ: spillway sidecars list shows which")
	}
	for _, s := range objects(o, "sidecars") {
		if degraded := outagesOf(s["degraded"]); degraded != "" && !isTrue(s, "self") {
			d.wrong("sidecars", "%s on %s is degraded: %s", text(s, "id"), text(s, "host"), degraded)
		}
	}
}

// page reads a page of Envoy, or of the sidecar's HTTP port. A refusal comes with its body.
func (d *doctor) page(at, path string) ([]byte, error) {
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	request, err := http.NewRequestWithContext(d.ctx, http.MethodGet, at+path, nil)
	if err != nil {
		return nil, err
	}
	got, err := (&http.Client{Timeout: askWithin, Transport: &http.Transport{Proxy: nil}}).Do(request)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	body, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer))
	if err == nil && got.StatusCode != http.StatusOK {
		err = &refusal{got.StatusCode, fmt.Errorf("%s%s answers %s", at, path, got.Status)}
	}
	return body, err
}

// dump reads a page of Envoy that is JSON.
func (d *doctor) dump(at, path string) (object, error) {
	body, err := d.page(at, path)
	if err != nil {
		return nil, err
	}
	o, err := parse(body)
	if err != nil {
		err = fmt.Errorf("%s%s must be JSON: --envoy names the admin port of Envoy", at, path)
	}
	return o, err
}

// wiring is what Envoy's configuration has about Spillway.
type wiring struct {
	asks     map[string]bool   // clusters that filters ask
	domains  map[string]bool   // domains that filters and routes name
	clusters map[string]object // configurations by name
	limits   bool              // a rate limit filter asks
	routes   bool              // a route has rate_limits
	waits    []string          // how long filters wait for an answer
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
	d.checkWiring(at, config)
	d.checkCounters(at)
}

// checkWiring checks what the configuration of Envoy has about Spillway.
func (d *doctor) checkWiring(at string, config object) {
	w := &wiring{asks: map[string]bool{}, domains: map[string]bool{}, clusters: map[string]object{}}
	w.read(config)
	if len(w.asks) == 0 {
		d.wrong("envoy",
			"no listener has a rate limit or ext_authz filter that asks a cluster: no request reaches Spillway")
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
	slices.Sort(w.waits) // the configuration is in the dump twice
	for _, wait := range slices.Compact(w.waits) {
		if length, err := time.ParseDuration(wait); err == nil && length > 0 && length < leastWait {
			d.wrong("envoy",
				"a filter waits %v for an answer, of which Redis gets four fifths: set its timeout to %v or more",
				length, leastWait)
		}
	}
	d.checkClusters(at, w)
}

// leastWait is the shortest timeout of a filter that leaves Redis enough time: Envoy's own default.
const leastWait = 20 * time.Millisecond

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
	domain, asks := "", ""
	switch {
	case strings.HasSuffix(kind, ".ratelimit.v3.RateLimit"):
		w.limits = true
		domain, asks = text(o, "domain"), text(o, "rate_limit_service.grpc_service.envoy_grpc.cluster_name")
		w.waits = append(w.waits, cmp.Or(text(o, "timeout"), "0.020s"))
	case strings.HasSuffix(kind, ".RateLimitPerRoute"):
		domain = text(o, "domain")
	case strings.HasSuffix(kind, ".ext_authz.v3.ExtAuthz"):
		asks = text(o, "grpc_service.envoy_grpc.cluster_name")
		w.waits = append(w.waits, cmp.Or(text(o, "grpc_service.timeout"), "0.200s"))
	case strings.HasSuffix(kind, ".cluster.v3.Cluster"):
		w.clusters[text(o, "name")] = o
	}
	if domain != "" {
		w.domains[domain] = true
	}
	if asks != "" {
		w.asks[asks] = true
	}
	list, _ := o["rate_limits"].([]any)
	w.routes = w.routes || len(list) > 0
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
		d.checkHosts(name, hosts[name])
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
	o, err := d.dump(at, `/stats?format=json&usedonly&filter=(ratelimit|ext_authz)\.(error|failure_mode_allowed)$`)
	if err != nil {
		d.wrong("envoy", "%v", err)
		return
	}
	for _, one := range objects(o, "stats") {
		name, n := text(one, "name"), whole(one, "value")
		if n > 0 && strings.HasSuffix(name, "error") {
			d.wrong("envoy", "%s is %d: that often Spillway did not answer in time, or not at all", name, n)
		} else if n > 0 {
			d.wrong("envoy", "%s is %d: so many requests were let through, because the failure mode allows it", name, n)
		}
	}
}
