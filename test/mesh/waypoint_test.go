package mesh

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// waypointPod is what Istio's controllers make of the Gateway of an example, and the reader's tokens.
const waypointPod = `apiVersion: v1
kind: Pod
metadata:
  name: waypoint-0
  namespace: shop
  labels: {gateway.networking.k8s.io/gateway-name: waypoint, gateway.istio.io/managed: istio.io-mesh-controller}
spec: {nodeName: node, containers: [{name: istio-proxy, image: "proxy:v1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: waypoint, namespace: shop, labels: {gateway.networking.k8s.io/gateway-name: waypoint}}
spec:
  selector: {gateway.networking.k8s.io/gateway-name: waypoint}
  ports: [{name: mesh, port: 15008, appProtocol: all}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: waypoint-1, namespace: shop, labels: {kubernetes.io/service-name: waypoint}}
addressType: IPv4
ports: [{name: mesh, port: 15008, protocol: TCP}]
endpoints:
- {addresses: [10.1.2.3], conditions: {ready: true}, targetRef: {kind: Pod, name: waypoint-0, namespace: shop}}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: waypoint}]
  jwtRules: [{issuer: test, jwks: 'JWKS', forwardOriginalToken: true}]
`

// entrance leads a port into the listener of a waypoint behind its tunnel: a call to the Service of the workload.
const entrance = `bootstrap_extensions:
- name: envoy.bootstrap.internal_listener
  typed_config: {"@type": type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener}
static_resources:
  listeners:
  - name: entrance
    address: {socket_address: {address: 10.1.2.3, port_value: 8888}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.set_filter_state
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.set_filter_state.v3.Config
          on_new_connection:
          - object_key: envoy.filters.listener.original_dst.local_ip
            format_string: {text_format_source: {inline_string: "(service):80"}}
            shared_with_upstream: TRANSITIVE
          - object_key: envoy.filters.listener.original_dst.remote_ip
            format_string: {text_format_source: {inline_string: "%DOWNSTREAM_REMOTE_ADDRESS%"}}
            shared_with_upstream: TRANSITIVE
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: entrance
          cluster: entrance
  clusters:
  - name: entrance
    transport_socket:
      name: envoy.transport_sockets.internal_upstream
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport
        transport_socket:
          name: envoy.transport_sockets.raw_buffer
          typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}
    load_assignment:
      cluster_name: entrance
      endpoints: [{lb_endpoints: [{endpoint: {address: {envoy_internal_address: {server_listener_name: main_internal}}}}]}]
`

// fromIstiod asks istiod for all resources of a type, as the Envoy with a bootstrap does.
func fromIstiod(t *testing.T, bootstrap, kind string) []*anypb.Any {
	t.Helper()
	var envoy struct{ Node map[string]any }
	must.Do(t, yaml.Unmarshal([]byte(bootstrap), &envoy))
	ask := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{}, TypeUrl: kind}
	must.Do(t, protojson.Unmarshal(must.Get(json.Marshal(envoy.Node))(t), ask.Node))
	istiod := must.Get(grpc.NewClient("127.0.0.1:15010", grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer istiod.Close()
	stream := must.Get(discoveryv3.NewAggregatedDiscoveryServiceClient(istiod).StreamAggregatedResources(t.Context()))(t)
	must.Do(t, stream.Send(ask))
	return must.Get(stream.Recv())(t).Resources
}

// awaitIstiod waits until what istiod sends of a type holds all texts: it learns of the manifests one after the other.
func awaitIstiod(t *testing.T, bootstrap, kind string, texts ...string) (all []*anypb.Any) {
	t.Helper()
	servers.Await(t, "what istiod sends to a waypoint", func() error {
		all = fromIstiod(t, bootstrap, kind)
		sent := ""
		for _, one := range all {
			sent += string(one.Value)
		}
		for _, text := range texts {
			if !strings.Contains(sent, text) {
				return errors.New(text + " is missing")
			}
		}
		return nil
	})
	return all
}

// forEnvoy makes of the listener behind the tunnel one for Envoy itself: without the filters of Istio's own build,
// which only gather facts for metrics.
func forEnvoy(t *testing.T, listeners []*anypb.Any) *anypb.Any {
	t.Helper()
	for _, one := range listeners {
		listener := &listenerv3.Listener{}
		must.Do(t, one.UnmarshalTo(listener))
		if listener.Name != "main_internal" {
			continue
		}
		for _, chain := range listener.FilterChains {
			for _, filter := range chain.Filters {
				manager := &hcmv3.HttpConnectionManager{}
				if filter.GetTypedConfig().UnmarshalTo(manager) != nil {
					continue // another one
				}
				manager.HttpFilters = slices.DeleteFunc(manager.HttpFilters, func(f *hcmv3.HttpFilter) bool {
					return strings.Contains(string(f.GetTypedConfig().GetValue()), "/io.istio.")
				})
				filter.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: must.Get(anypb.New(manager))(t)}
			}
		}
		return must.Get(anypb.New(listener))(t)
	}
	t.Fatal("istiod sends no listener main_internal")
	return nil
}

// startWaypoint starts Envoy with what istiod sends to a waypoint. Its tunnels need certificates, so they are left out.
func startWaypoint(t *testing.T, pod object, service string) *proxy {
	t.Helper()
	bootstrap, dir := bootstrapOf(t, "waypoint", pod), folder(t)
	listeners := awaitIstiod(t, bootstrap, resourcev3.ListenerType, "envoy_on_request", "jwt_authn",
		"inbound-vip|80|http|checkout.shop.svc.cluster.local")
	clusters := awaitIstiod(t, bootstrap, resourcev3.ClusterType, "inbound-vip|80|http|checkout.shop.svc.cluster.local",
		"outbound|8080||spillway.shop.svc.cluster.local")
	clusters = slices.DeleteFunc(clusters, func(c *anypb.Any) bool {
		return strings.Contains(string(c.Value), "sds-grpc")
	})
	for name, all := range map[string][]*anypb.Any{"lds": {forEnvoy(t, listeners)}, "cds": clusters} {
		text := must.Get(proto.Marshal(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Resources: all}))(t)
		file := filepath.Join(dir, name+".pb")
		write(t, file, string(text))
		bootstrap = strings.Replace(bootstrap, name+"_config: {ads: {},", name+"_config: {path_config_source: {path: "+file+"},", 1)
	}
	before, after, _ := strings.Cut(bootstrap, "static_resources:\n  clusters:\n")
	return startProxy(t, before+strings.Replace(entrance, "(service)", service, 1)+after)
}

// TestWaypoint: waypoint.yaml in the part of a waypoint that is behind its tunnel, as istiod configures it.
func TestWaypoint(t *testing.T) {
	c, tokens := startCluster(t), newIssuer(t)
	startIstiod(t, c, "PILOT_ENABLE_AMBIENT=true")
	// Spillway and the workload share the network here. On a busy machine the Lua would let requests pass.
	text := strings.NewReplacer("value: 0.0.0.0", "value: "+spillwayIP, `"]}", 100)`, `"]}", 30000)`,
		"{ count: 6000, per: 1m, burst: 1000 }", "20/1h").Replace(example(t, "waypoint.yaml"))
	s := &scene{cluster: c, all: parse(t, text)}
	c.mustApply(t, s.all...)
	c.startPod(t, workload)
	pod := c.startPod(t, strings.Replace(waypointPod, "JWKS", tokens.keys(), 1))
	c.mustApply(t, parse(t, strings.ReplaceAll(spillwayEndpoint, "name: grpc, port: 8081", "name: http, port: 8080"))...)
	startApp(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	startSpillway(t, c, s.kind("Deployment")[0], s.kind("ConfigMap")...)
	service := c.get(t, object{"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "checkout", "namespace": "shop"}})
	s.proxy = startWaypoint(t, pod, service.text("spec", "clusterIP"))
	s.proxy.await(t, "outbound|8080||spillway.shop.svc.cluster.local")
	servers.Await(t, "the waypoint's way to the workload", func() error {
		status, _, err := request{to: gatewayAddr, path: "/"}.send()
		if err == nil && status != http.StatusOK && status != http.StatusTooManyRequests {
			err = errors.New(http.StatusText(status))
		}
		return err
	})

	orders := request{to: gatewayAddr, from: "10.1.9.8", path: "/orders", method: http.MethodPost,
		header: tokens.bearer(t, "alice")}
	wants(t, 5, http.StatusOK, orders)
	if header := wants(t, 1, http.StatusTooManyRequests, orders); header.Get("retry-after") == "" {
		t.Errorf("a refusal has no retry-after: %v", header)
	}
	orders.header = newIssuer(t).bearer(t, "bob")
	wants(t, 6, http.StatusUnauthorized, orders) // what Istio refuses is not counted
	orders.header = tokens.bearer(t, "bob")
	wants(t, 5, http.StatusOK, orders)

	caller := request{to: gatewayAddr, from: "10.1.9.9", path: "/"}
	wants(t, 20, http.StatusOK, caller)
	caller.header = []string{"X-Forwarded-For", "10.1.9.10"}
	wants(t, 1, http.StatusTooManyRequests, caller) // the pod that calls, and not what it writes
	caller.from = "10.1.9.11"
	wants(t, 1, http.StatusOK, caller)
}
