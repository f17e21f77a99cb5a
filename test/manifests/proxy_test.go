package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"
	core "k8s.io/api/core/v1"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// fields is a piece of Envoy's configuration.
type fields = map[string]any

// proxy is the Envoy of a workload (or a waypoint) as Istio would configure it, as far as the manifests of a file
// determine it.
type proxy struct {
	filters  []any             // of HTTP, before the router
	host     fields            // the virtual host of the application
	clusters map[string]fields // by name, but for the application's
}

// application is the port of the workload, and inbound what Istio calls the virtual host of it.
const (
	application = "8080"
	inbound     = "inbound|http|" + application
)

const connectionManager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3." +
	"HttpConnectionManager"

// assemble does with the manifests of a file what Istio does. A field that it does not know fails the test.
func assemble(t *testing.T, all []document, providers providers) *proxy {
	t.Helper()
	p := &proxy{clusters: map[string]fields{}, host: fields{
		"name": inbound, "domains": []any{"*"},
		"routes": []any{fields{"name": "default", "match": fields{"prefix": "/"}, "route": fields{"cluster": "app"}}},
	}}
	for _, d := range all {
		switch object := d.object.(type) {
		case *networking.ServiceEntry:
			p.addEntry(t, object)
		case *core.Service:
			for _, port := range object.Spec.Ports {
				p.addCluster(fmt.Sprintf("%s.%s.svc.cluster.local", d.Name, d.Namespace), int(port.Port), "127.0.0.1")
			}
		}
	}
	for _, d := range all {
		switch d.Kind {
		case "DestinationRule":
			p.addRule(t, d.object.(*networking.DestinationRule))
		case "EnvoyFilter":
			p.addPatches(t, d.object.(*networking.EnvoyFilter))
		case "AuthorizationPolicy":
			p.addPolicy(t, d, providers)
		}
	}
	return p
}

func (p *proxy) addEntry(t *testing.T, entry *networking.ServiceEntry) {
	t.Helper()
	if entry.Resolution != networking.ServiceEntry_STATIC || len(entry.Endpoints) != 1 || len(entry.Hosts) != 1 {
		t.Fatalf("this test knows entries with one host and one static endpoint, not %v", entry)
	}
	for _, port := range entry.Ports {
		if port.Protocol != "GRPC" {
			t.Errorf("port %d of %v is %s: Istio speaks HTTP/2 to GRPC alone", port.Number, entry.Hosts, port.Protocol)
		}
		p.addCluster(entry.Hosts[0], int(port.Number), entry.Endpoints[0].Address)
	}
}

// addCluster adds a cluster under the name that Istio gives it.
func (p *proxy) addCluster(host string, port int, address string) {
	name := fmt.Sprintf("outbound|%d||%s", port, host)
	const options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	p.clusters[name] = fields{
		"name": name, "type": "STATIC",
		"typed_extension_protocol_options": fields{options: fields{
			"@type":                "type.googleapis.com/" + options,
			"explicit_http_config": fields{"http2_protocol_options": fields{}},
		}},
		"load_assignment": fields{"cluster_name": name,
			"endpoints": []any{fields{"lb_endpoints": []any{fields{"endpoint": fields{
				"address": fields{"socket_address": fields{"address": address, "port_value": port}},
			}}}}}},
	}
}

// addRule changes the clusters of a host by its DestinationRule.
func (p *proxy) addRule(t *testing.T, rule *networking.DestinationRule) {
	t.Helper()
	found := false
	for name, cluster := range p.clusters {
		if !strings.HasSuffix(name, "||"+rule.Host) {
			continue
		}
		found = true
		cluster["connect_timeout"] = seconds(rule.TrafficPolicy.ConnectionPool.Tcp.ConnectTimeout)
		if o := rule.TrafficPolicy.OutlierDetection; o != nil {
			cluster["outlier_detection"] = fields{
				"consecutive_gateway_failure":           o.ConsecutiveGatewayErrors.Value,
				"enforcing_consecutive_gateway_failure": 100,
				"interval":                              seconds(o.Interval),
				"base_ejection_time":                    seconds(o.BaseEjectionTime),
				"max_ejection_percent":                  o.MaxEjectionPercent,
			}
		}
	}
	if !found {
		t.Errorf("no service is called %s, which a DestinationRule is for", rule.Host)
	}
	policy := proto.CloneOf(rule.TrafficPolicy)
	policy.ConnectionPool.Tcp.ConnectTimeout = nil
	policy.OutlierDetection = nil
	known := &networking.TrafficPolicy{Tls: policy.Tls, ConnectionPool: &networking.ConnectionPoolSettings{
		Tcp: &networking.ConnectionPoolSettings_TCPSettings{}}}
	if !proto.Equal(policy, known) || policy.Tls != nil && policy.Tls.Mode != networking.ClientTLSSettings_DISABLE {
		t.Errorf("this test does not know how Istio takes %v", policy)
	}
}

func seconds(d *durationpb.Duration) string {
	return strconv.FormatFloat(d.AsDuration().Seconds(), 'f', -1, 64) + "s"
}

// addPatches applies the patches of an EnvoyFilter.
func (p *proxy) addPatches(t *testing.T, filter *networking.EnvoyFilter) {
	t.Helper()
	for i, patch := range filter.ConfigPatches {
		if patch.Match.Context != networking.EnvoyFilter_SIDECAR_INBOUND {
			t.Errorf("patch %d is for %v: this test knows what comes into a sidecar", i, patch.Match.Context)
		}
		value := patch.Patch.Value.AsMap()
		switch what := patch.ApplyTo.String() + " " + patch.Patch.Operation.String(); what {
		case "CLUSTER ADD":
			p.clusters[value["name"].(string)] = value
		case "HTTP_FILTER INSERT_BEFORE":
			at := patch.Match.GetListener().GetFilterChain().GetFilter()
			if at.GetName() != "envoy.filters.network.http_connection_manager" ||
				at.GetSubFilter().GetName() != "envoy.filters.http.router" {
				t.Errorf("patch %d goes before %v, which is not the router", i, at)
			}
			p.filters = append(p.filters, value)
		case "VIRTUAL_HOST MERGE":
			if name := patch.Match.GetRouteConfiguration().GetVhost().GetName(); name != "" && name != inbound {
				t.Errorf("patch %d is for the virtual host %q, which is not there", i, name)
			}
			merge(p.host, value)
		default:
			t.Errorf("patch %d: this test does not know %s", i, what)
		}
	}
}

// merge merges as protocol buffers do: messages field by field, lists one after the other.
func merge(into, from fields) {
	for key, value := range from {
		switch old := into[key].(type) {
		case fields:
			merge(old, value.(fields))
		case []any:
			into[key] = append(old, value.([]any)...)
		default:
			into[key] = value
		}
	}
}

// asked are the clusters that the filters call.
func (p *proxy) asked(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	var walk func(any)
	walk = func(piece any) {
		switch piece := piece.(type) {
		case fields:
			if service, found := piece["envoy_grpc"].(fields); found {
				names[service["cluster_name"].(string)] = true
			}
			for _, one := range piece {
				walk(one)
			}
		case []any:
			for _, one := range piece {
				walk(one)
			}
		}
	}
	walk(p.filters)
	return slices.Sorted(maps.Keys(names))
}

// spillway is the cluster that the filters call. Envoy takes the name of one that does not exist without complaint.
func (p *proxy) spillway(t *testing.T) fields {
	t.Helper()
	names := p.asked(t)
	if len(names) != 1 {
		t.Fatalf("the filters ask %v, want one cluster", names)
	}
	cluster, found := p.clusters[names[0]]
	if !found {
		t.Fatalf("the filters ask %s, and there is %v", names[0], slices.Collect(maps.Keys(p.clusters)))
	}
	return cluster
}

// endpoint is the only endpoint of a cluster.
func endpoint(t *testing.T, cluster fields) fields {
	t.Helper()
	endpoints := cluster["load_assignment"].(fields)["endpoints"].([]any)
	hosts := endpoints[0].(fields)["lb_endpoints"].([]any)
	if len(endpoints) != 1 || len(hosts) != 1 {
		t.Fatalf("more than one endpoint: %v", endpoints)
	}
	return hosts[0].(fields)["endpoint"].(fields)
}

// bootstrap is the whole configuration of an Envoy in front of an application at that address.
func (p *proxy) bootstrap(t *testing.T, app string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(app)
	if err != nil {
		t.Fatal(err)
	}
	number := must.Get(strconv.Atoi(port))(t)
	local := func(port int) fields {
		return fields{"socket_address": fields{"address": host, "port_value": port}}
	}
	router := fields{"name": "envoy.filters.http.router",
		"typed_config": fields{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}
	manager := fields{
		"@type": connectionManager,
		// As Istio sets them for what comes into a sidecar.
		"stat_prefix": "inbound", "use_remote_address": false, "normalize_path": true,
		"route_config": fields{"name": "inbound|" + application + "||", "virtual_hosts": []any{p.host}},
		"http_filters": append(slices.Clone(p.filters), router),
	}
	clusters := []any{fields{"name": "app", "type": "STATIC", "load_assignment": fields{"cluster_name": "app",
		"endpoints": []any{
			fields{"lb_endpoints": []any{fields{"endpoint": fields{"address": local(number)}}}},
		}}}}
	for _, cluster := range p.clusters {
		clusters = append(clusters, cluster)
	}
	text, err := json.MarshalIndent(fields{
		"node": fields{"id": "test", "cluster": "test"}, "admin": fields{"address": local(0)},
		"static_resources": fields{
			"listeners": []any{fields{"name": "inbound", "address": local(0), "filter_chains": []any{
				fields{"filters": []any{fields{"name": "envoy.filters.network.http_connection_manager",
					"typed_config": manager}}},
			}}},
			"clusters": clusters,
		},
	}, "", " ")
	if err != nil {
		t.Fatalf("write the bootstrap: %v", err)
	}
	return string(text)
}

func TestEnvoyTakesEveryPatch(t *testing.T) {
	for _, name := range sidecarFiles(t) {
		t.Run(name, func(t *testing.T) {
			p := assemble(t, documents(t, example(t, name)), providersOf(t, example(t, meshValues)))
			p.spillway(t)
			file := filepath.Join(t.TempDir(), "envoy.yaml")
			must.Do(t, os.WriteFile(file, []byte(p.bootstrap(t, "127.0.0.1:8080")), 0o600))
			servers.ValidateEnvoy(t, file)
		})
	}
}
