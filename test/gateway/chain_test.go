package gateway

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// base is a Gateway with two routes, and the Envoy of this machine.
const base = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: host, namespace: envoy-gateway-system}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: host, namespace: envoy-gateway-system}
spec: {provider: {type: Host, host: {envoyVersion: "1.40.0"}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: default}
spec:
  gatewayClassName: eg
  listeners: [{name: http, protocol: HTTP, port: 8888}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: upstream, namespace: default}
spec: {endpoints: [{fqdn: {hostname: upstream.example, port: PORT}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: user, namespace: default}
spec:
  parentRefs: [{name: eg}]
  rules: [{matches: [{path: {type: PathPrefix, value: /user}}], backendRefs: [{group: gateway.envoyproxy.io,
      kind: Backend, name: upstream}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: network, namespace: default}
spec:
  parentRefs: [{name: eg}]
  rules: [{matches: [{path: {type: PathPrefix, value: /network}}], backendRefs: [{group: gateway.envoyproxy.io,
      kind: Backend, name: upstream}]}]
`

const policyHead = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: %s, namespace: default}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: %[1]s}]
  rateLimit:
    type: Global
    global:
      rules:
`

// perUser limits each value of x-user.
func perUser(count int) string {
	return fmt.Sprintf(policyHead, "user") +
		fmt.Sprintf(`      - clientSelectors: [{headers: [{name: x-user, type: Distinct}]}]
        limit: {requests: %d, unit: Hour}
`, count)
}

// sameNetwork has two rules for one CIDR: all addresses together, and each of them. The reference server refuses
// everything for it. A second is enough for the requests of a test, and another one comes.
func sameNetwork(together, each int) string {
	return fmt.Sprintf(policyHead, "network") +
		fmt.Sprintf(`      - clientSelectors: [{sourceCIDR: {type: Exact, value: 0.0.0.0/0}}]
        limit: {requests: %d, unit: Second}
      - clientSelectors: [{sourceCIDR: {type: Distinct, value: 0.0.0.0/0}}]
        limit: {requests: %d, unit: Second}
`, together, each)
}

// TestChain is the life of one installation: the sidecar starts before Envoy Gateway; policies are added, changed,
// refused and deleted; every part is killed and started again.
func TestChain(t *testing.T) {
	w := newWorld(t)
	_, port, err := net.SplitHostPort(servers.StartUpstream(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, "base", strings.ReplaceAll(base, "PORT", port)+"---\n"+w.secret(t))
	w.startSidecar(t)
	awaitPage(t, "8080", "/healthcheck", "OK")
	awaitPage(t, "8080", "/readyz", "xds: no stream to envoy-gateway:18001")
	w.startGateway(t)
	w.await(t, "user", 12) // no policy
	awaitPage(t, "8080", "/readyz", "ok\n")

	w.apply(t, "user", perUser(3))
	w.await(t, "user", 3)
	awaitPage(t, "6070", "/rlconfig", "default/eg/http.httproute/default/user/rule/0/match/0/*")
	awaitPage(t, "19001", "/metrics", `ratelimit_service_rate_limit_over_limit{domain="default/eg/http"`)
	w.apply(t, "user", perUser(5))
	w.await(t, "user", 5)

	w.apply(t, "network", sameNetwork(7, 4))
	w.await(t, "network", 4)
	w.apply(t, "network", strings.Replace(perUser(1), "type: Distinct", "type: Unheard", 1))
	servers.Await(t, "Envoy Gateway to refuse the policy", func() error {
		if !strings.Contains(w.gateway.Output(), `Unsupported value: \"Unheard\"`) {
			return errors.New("the condition is missing")
		}
		return nil
	})
	w.await(t, "user", 5) // it takes nothing from the folder while the policy is there, and all limits stay
	w.await(t, "network", 4)
	w.apply(t, "network", "")
	w.apply(t, "user", perUser(6))
	w.await(t, "user", 6)
	w.restarts(t)
}

// restarts kills each part and starts it again.
func (w *world) restarts(t *testing.T) {
	w.sidecar.End(t)
	w.startSidecar(t)
	w.await(t, "user", 6)

	w.gateway.End(t) // and its Envoy
	awaitPage(t, "8080", "/readyz", "xds: no stream to")
	awaitPage(t, "6070", "/rlconfig", "requests_per_unit=6") // the last good rules stay
	w.apply(t, "user", perUser(2))
	w.startGateway(t)
	w.await(t, "user", 2)

	w.gateway.End(t)
	w.apply(t, "user", "")
	w.startGateway(t)
	w.await(t, "user", 12) // what was deleted meanwhile is gone

	w.apply(t, "user", perUser(4))
	w.await(t, "user", 4)
	w.redis.Kill(t)
	w.redis.Start(t)
	w.await(t, "user", 4)

	w.sidecar.End(t)
	w.redis.Kill(t)
	w.startSidecar(t) // without Redis: limits hold in memory
	w.await(t, "user", 4)
}
