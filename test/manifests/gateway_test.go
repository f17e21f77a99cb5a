package manifests

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	envoygateway "github.com/envoyproxy/gateway/api/v1alpha1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"

	environment "github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
	"sigs.k8s.io/yaml"
)

// gatewayEdits are what a reader does to a copy: two names, and a limit of which nothing comes back while a test runs.
var gatewayEdits = strings.NewReplacer("shop", "bakery", "public", "front", "20/1m", "20/1h")

// gatewayFile is the text of a file of examples/envoy-gateway, after the reader's edits.
func gatewayFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(servers.Root(t), "examples", "envoy-gateway", name))
	if err != nil {
		t.Fatalf("read an example: %v", err)
	}
	return gatewayEdits.Replace(string(text))
}

// routed is the Envoy of a Gateway as Envoy Gateway would configure it, as far as the manifests of a file determine it.
type routed struct {
	listener, route fields
	clusters        []any
	spillway        fields // the cluster that is asked
}

// router is the listener of a Gateway with one route, in the words that patches are written in.
func router(app fields) *routed {
	r := &routed{route: fields{"match": fields{"prefix": "/"}, "route": fields{"cluster": "app"}},
		clusters: []any{cluster("app", app)}}
	r.listener = fields{
		"name": "bakery/front/http", "address": socket("127.0.0.1", 0),
		"default_filter_chain": fields{"filters": []any{fields{"name": "envoy.filters.network.http_connection_manager",
			"typed_config": fields{
				"@type":       connectionManager,
				"stat_prefix": "inbound", "use_remote_address": true, "normalize_path": true, "merge_slashes": true,
				"path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
				"route_config": fields{
					"virtual_hosts": []any{fields{"name": "all", "domains": []any{"*"}, "routes": []any{r.route}}}},
				"http_filters": []any{fields{"name": "envoy.filters.http.router", "typed_config": fields{
					"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
				}}},
			}}}},
	}
	return r
}

func socket(host string, port int) fields {
	return fields{"socket_address": fields{"address": host, "port_value": port}}
}

func cluster(name string, address fields) fields {
	return fields{"name": name, "type": "STATIC", "load_assignment": fields{"cluster_name": name, "endpoints": []any{
		fields{"lb_endpoints": []any{fields{"endpoint": fields{"address": address}}}},
	}}}
}

// firstFilter is where patches put a filter.
const firstFilter = "/default_filter_chain/filters/0/typed_config/http_filters/0"

// secure adds what Envoy Gateway makes of a SecurityPolicy: a filter that is off, a cluster, and a route that turns the
// filter on.
func (r *routed) secure(t *testing.T, d document, services map[string]int32) {
	t.Helper()
	auth := d.object.(*envoygateway.SecurityPolicy).Spec.ExtAuth
	to := auth.GRPC.BackendRefs[0]
	if services[string(to.Name)] != *to.Port {
		t.Fatalf("no Service is called %s with port %d: %v", to.Name, *to.Port, services)
	}
	breaker := auth.GRPC.BackendSettings.CircuitBreaker
	const options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	r.spillway = cluster("securitypolicy/limits", socket("127.0.0.1", 0))
	r.spillway["typed_extension_protocol_options"] = fields{options: fields{
		"@type": "type.googleapis.com/" + options, "explicit_http_config": fields{"http2_protocol_options": fields{}},
	}}
	r.spillway["circuit_breakers"] = fields{"thresholds": []any{fields{
		"max_pending_requests": breaker.MaxPendingRequests, "max_requests": breaker.MaxParallelRequests,
		"max_retries": 1024,
	}}}
	r.clusters = append(r.clusters, r.spillway)
	name := "envoy.filters.http.ext_authz/securitypolicy/" + d.Namespace + "/" + d.Name
	add(t, r.listener, firstFilter, fields{"name": name, "disabled": true, "typed_config": fields{
		"@type":                 "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
		"transport_api_version": "V3", "failure_mode_allow": *auth.FailOpen,
		"grpc_service": fields{"envoy_grpc": fields{"cluster_name": "securitypolicy/limits",
			"authority": "spillway.bakery:8081"}, "timeout": "5s"},
	}})
	extensions := fields{}
	for _, e := range auth.ContextExtensions {
		extensions[e.Name] = *e.Value
	}
	r.route["typed_per_filter_config"] = fields{name: fields{
		"@type":          "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute",
		"check_settings": fields{"context_extensions": extensions},
	}}
}

// patch applies the patches of an EnvoyPatchPolicy: a whole cluster, or something in the listener.
func (r *routed) patch(t *testing.T, d document, services map[string]int32) {
	t.Helper()
	for i, p := range d.object.(*envoygateway.EnvoyPatchPolicy).Spec.JSONPatches {
		var value fields
		err := json.Unmarshal(p.Operation.Value.Raw, &value)
		if err != nil || p.Operation.Op != "add" {
			t.Fatalf("patch %d: %s %v", i, p.Operation.Op, err)
		}
		switch {
		case p.Type == envoygateway.ClusterEnvoyResourceType && *p.Operation.Path == "":
			r.spillway = value
			r.clusters = append(r.clusters, value)
			at := endpoint(t, value)["address"].(fields)["socket_address"].(fields)
			name, found := strings.CutSuffix(at["address"].(string), "."+d.Namespace+".svc.cluster.local")
			if !found || float64(services[name]) != at["port_value"] {
				t.Errorf("no Service is at %v: %v", at, services)
			}
		case p.Type == envoygateway.ListenerEnvoyResourceType && p.Name == r.listener["name"]:
			value["typed_config"].(fields)["timeout"] = "5s"
			add(t, r.listener, *p.Operation.Path, value)
		default:
			t.Errorf("patch %d is for %s %s, which is not there", i, p.Type, p.Name)
		}
	}
}

// add is JSON Patch's operation of that name on something that is in an object or in a list.
func add(t *testing.T, in any, path string, value any) {
	t.Helper()
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	last := len(parts) - 1
	list := parts[last-1]
	for _, part := range parts[:last-1] {
		switch at := in.(type) {
		case fields:
			in = at[part]
		case []any:
			in = at[number(t, part)]
		default:
			t.Fatalf("%s leads nowhere at %s", path, part)
		}
	}
	in.(fields)[list] = slices.Insert(in.(fields)[list].([]any), number(t, parts[last]), value)
}

func number(t *testing.T, text string) int {
	t.Helper()
	n := must.Get(strconv.Atoi(text))(t)
	return n
}

// startGateway starts what spillway.yaml and a file beside it describe.
func startGateway(t *testing.T, name string) *world {
	t.Helper()
	all := documents(t, gatewayFile(t, "spillway.yaml"))
	w := &world{rules: mountRules(t, all)}
	env := podOf(t, all).environment(t, w.rules.dir)
	w.sidecar = servers.StartSidecar(t, env...)
	host, port, err := net.SplitHostPort(servers.StartUpstream(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	r := router(socket(host, number(t, port)))
	services := map[string]int32{}
	for _, d := range all {
		if s, is := d.object.(*core.Service); is {
			services[d.Name] = s.Spec.Ports[0].Port
		}
	}
	for _, d := range documents(t, gatewayFile(t, name)) {
		switch d.object.(type) {
		case *envoygateway.SecurityPolicy:
			r.secure(t, d, services)
		case *envoygateway.EnvoyPatchPolicy:
			r.patch(t, d, services)
		default:
			t.Fatalf("this test does not know %s", d.Kind)
		}
	}
	endpoint(t, r.spillway)["address"] = w.address(t, env)
	text := must.Get(json.Marshal(fields{
		"node": fields{"id": "test", "cluster": "test"}, "admin": fields{"address": socket("127.0.0.1", 0)},
		"static_resources": fields{"listeners": []any{r.listener}, "clusters": r.clusters},
	}))(t)
	w.envoy = servers.StartEnvoy(t, string(text))
	return w
}

func TestGatewayFilesLimitRequests(t *testing.T) {
	for name, c := range map[string]struct {
		passes int
		of     request
	}{"ext-authz.yaml": {20, byKey("/")}, "rls.yaml": {5, request{path: "/login"}}} {
		t.Run(name, func(t *testing.T) {
			w := startGateway(t, name)
			w.wantsQuietSidecar(t)
			inside(t)
			w.wants(t, c.passes, http.StatusOK, c.of)
			refused := w.wants(t, 1, http.StatusTooManyRequests, c.of)
			if refused.Header.Get("retry-after") == "" || refused.Header.Get("x-ratelimit-remaining") != "0" {
				t.Errorf("the refusal does not say when to come again: %v", refused.Header)
			}
			w.wants(t, 1, http.StatusOK, request{path: "/"})
			if name == "rls.yaml" {
				// A client cannot name its own address.
				w.wants(t, 1, http.StatusTooManyRequests, request{"/login", "x-forwarded-for", "203.0.113.9"})
			}
			w.wantsNoErrors(t)
			w.sidecar.End(t)
			w.wants(t, 3, http.StatusOK, c.of)
		})
	}
}

// The Deployment is that of examples/istio/ambient.yaml, so that what holds for its pod holds here, but that the policy
// names the domain.
func TestGatewayDeploymentIsTheMeshs(t *testing.T) {
	find := func(all []document) *apps.Deployment {
		i := slices.IndexFunc(all, func(d document) bool { return d.Kind == "Deployment" })
		return all[i].object.(*apps.Deployment)
	}
	got := find(documents(t, gatewayFile(t, "spillway.yaml")))
	want := find(documents(t, gatewayEdits.Replace(example(t, "ambient.yaml"))))
	c := &want.Spec.Template.Spec.Containers[0]
	c.Env = slices.DeleteFunc(c.Env, func(e core.EnvVar) bool { return e.Name == "DEFAULT_DOMAIN" })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the Deployment differs from that of the mesh:\n%v\n%v", got, want)
	}
}

// The configuration of Envoy Gateway names an image for its rate limit Deployment, and variables that Spillway reads
// beside those of the Deployment.
func TestGatewayConfigurationNamesTheImage(t *testing.T) {
	var cfg envoygateway.EnvoyGateway
	wire, err := yaml.YAMLToJSONStrict([]byte(gatewayFile(t, "envoy-gateway.yaml")))
	if err == nil {
		err = strictly(wire, &cfg)
	}
	if err != nil || cfg.Kind != "EnvoyGateway" || cfg.RateLimit == nil || cfg.RateLimit.Backend.Redis == nil {
		t.Fatalf("%+v has no rate limit backend (%v)", cfg, err)
	}
	container := cfg.Provider.Kubernetes.RateLimitDeployment.Container
	if container.Image == nil || !strings.Contains(*container.Image, "spillway") {
		t.Errorf("the image is %v", container.Image)
	}
	environ := []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001",
		"REDIS_URL=" + *cfg.RateLimit.Backend.Redis.URL}
	for _, e := range container.Env {
		environ = append(environ, e.Name+"="+e.Value)
	}
	read, err := environment.FromEnvironment(environ, "/bin/ratelimit")
	if err != nil || len(read.Warnings) > 0 {
		t.Errorf("the environment is refused or has no effect: %v %q", err, read.Warnings)
	}
}

func TestMistakesInGatewayFilesAreSeen(t *testing.T) {
	const policy = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: a}\n"
	for _, spec := range []string{"{extAuths: {}}", "{extAuth: {failopen: true}}",
		"{extAuth: {grpc: {backendRefs: [{named: a}]}}}"} {
		_, err := decode(policy + "spec: " + spec + "\n")
		if err == nil {
			t.Errorf("taken as good: %s", spec)
		}
	}
}
