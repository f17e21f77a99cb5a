package mesh

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// workload is the pod of the reader's application, with its Service. No scheduler, kubelet or controller runs here, so
// startPod writes that it runs.
const workload = readersOwn + `---
apiVersion: v1
kind: Pod
metadata: {name: checkout-0, namespace: shop, labels: {app: checkout}}
spec: {nodeName: node, containers: [{name: checkout, image: "checkout:v1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: checkout, namespace: shop}
spec: {selector: {app: checkout}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: checkout-1, namespace: shop, labels: {kubernetes.io/service-name: checkout}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.1.2.3], conditions: {ready: true}, targetRef: {kind: Pod, name: checkout-0, namespace: shop}}
`

// spillwayEndpoint is what the controller of endpoints makes of the examples' Service.
const spillwayEndpoint = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: spillway-1, namespace: shop, labels: {kubernetes.io/service-name: spillway}}
addressType: IPv4
ports: [{name: grpc, port: 8081, protocol: TCP}]
endpoints: [{addresses: [10.1.2.4], conditions: {ready: true}}]
`

// scene is the world of a test: the manifests of one example in the cluster, the workload with its Envoy, and Spillway.
type scene struct {
	*cluster
	proxy *proxy
	all   []object
}

func (s *scene) kind(kind string) (found []object) {
	for _, o := range s.all {
		if o.text("kind") == kind {
			found = append(found, o)
		}
	}
	return found
}

// startPod applies the manifests of a pod, and writes that it runs.
func (c *cluster) startPod(t *testing.T, text string) (pod object) {
	t.Helper()
	for _, o := range parse(t, text) {
		c.mustApplyAs(t, "reader", o)
		if o.text("kind") != "Pod" {
			continue
		}
		pod = o
		must.Do(t, c.applyAs(object{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
			"name": o.text("metadata", "name"), "namespace": o.text("metadata", "namespace")},
			"status": map[string]any{"phase": "Running", "podIP": podIP, "podIPs": []any{map[string]any{"ip": podIP}},
				"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}, "/status", "kubelet"))
	}
	return pod
}

// patient lets Envoy wait for a machine that is busy: after the examples' own times it lets requests through.
var patient = strings.NewReplacer("timeout: 0.05s", "timeout: 30s", "timeout: 0.1s", "timeout: 30s", "timeout: 0.2s",
	"timeout: 30s")

// awaitLimits waits until Spillway decides about a request, which a header shows.
func awaitLimits(t *testing.T, r request) {
	t.Helper()
	servers.Await(t, "a decision of Spillway", func() error {
		_, header, err := r.send()
		if err == nil && header.Get("x-ratelimit-limit") == "" {
			err = fmt.Errorf("the answer has %v", header)
		}
		return err
	})
}

// startSidecar starts a workload with a sidecar and Spillway as in an example, in a namespace that is called by the
// reader, with changes of the reader.
func startSidecar(t *testing.T, c *cluster, file, namespace string, changes ...string) *scene {
	t.Helper()
	rename := strings.NewReplacer("namespace: shop", "namespace: "+namespace, "shop.svc", namespace+".svc")
	s := &scene{cluster: c}
	text := strings.NewReplacer(changes...).Replace(example(t, file))
	s.all = parse(t, patient.Replace(rename.Replace(text)))
	pod := c.startPod(t, rename.Replace(workload))
	c.mustApply(t, s.all...)
	if len(s.kind("Service")) > 0 {
		c.mustApply(t, parse(t, rename.Replace(spillwayEndpoint))...)
	}
	startApp(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	startSpillway(t, c, s.kind("Deployment")[0], s.kind("ConfigMap")...)
	s.proxy = startProxy(t, bootstrapOf(t, "sidecar", pod))
	s.proxy.await(t, "inbound|8080||")
	intercept(t)
	return s
}

// TestSidecars: each example for pods, in an Envoy that istiod configures from it.
func TestSidecars(t *testing.T) {
	c := startCluster(t)
	startIstiod(t, c)
	for _, row := range []struct {
		file, cluster string
		admitted      int
		request       request
	}{
		{"rls-socket.yaml", `"name": "spillway"`, 5, request{path: "/login"}},
		{"rls-loopback.yaml", "outbound|9181||spillway.local", 5, request{path: "/login"}},
		{"rls-namespace.yaml", "outbound|8081||spillway.", 5, request{path: "/login"}},
		{"ext-authz.yaml", "outbound|9181||spillway.local", 20, request{path: "/", header: []string{"x-api-key",
			"spillway-demo-key"}}},
	} {
		t.Run(row.file, func(t *testing.T) {
			namespace := "of-" + strings.TrimSuffix(row.file, ".yaml")
			if row.file == "ext-authz.yaml" {
				namespace = "shop" // which mesh-values.yaml names
			}
			s := startSidecar(t, c, row.file, namespace)
			s.proxy.await(t, row.cluster)
			awaitLimits(t, request{path: "/"})
			wants(t, row.admitted, http.StatusOK, row.request)
			header := wants(t, 1, http.StatusTooManyRequests, row.request)
			if header.Get("retry-after") == "" {
				t.Errorf("a refusal has no retry-after: %v", header)
			}
		})
	}
	t.Run("one port", func(t *testing.T) { limitsOnePort(t, c) })
}

// narrower is the match that a comment of rls-loopback.yaml offers.
var narrower = regexp.MustCompile(`add to the match: (routeConfiguration: \{.*\})`)

// limitsOnePort: the Service has port 80, the container port 8080.
func limitsOnePort(t *testing.T, c *cluster) {
	found := narrower.FindStringSubmatch(example(t, "rls-loopback.yaml"))
	if found == nil {
		t.Fatal("rls-loopback.yaml offers no narrower match")
	}
	for name, row := range map[string]struct {
		match   string
		limited bool
	}{
		"of-the-port":         {found[1], true},
		"of-another":          {strings.Replace(found[1], "8080", "8081", 1), false},
		"of-the-service":      {strings.Replace(found[1], "8080", "80", 1), false},
		"by-the-name":         {`routeConfiguration: {vhost: {name: "inbound|http|80"}}`, true},
		"by-the-wrong-number": {`routeConfiguration: {vhost: {name: "inbound|http|8080"}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSidecar(t, c, "rls-loopback.yaml", name,
				"match: {context: SIDECAR_INBOUND}", "match: {context: SIDECAR_INBOUND, "+row.match+"}")
			s.proxy.await(t, "envoy.filters.http.ratelimit")
			if row.limited {
				awaitLimits(t, request{path: "/"})
			}
			wants(t, 5, http.StatusOK, request{path: "/login"})
			sixth := http.StatusOK
			if row.limited {
				sixth = http.StatusTooManyRequests
			}
			wants(t, 1, sixth, request{path: "/login"})
		})
	}
}
