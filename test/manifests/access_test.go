package manifests

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	security "istio.io/api/security/v1beta1"
	network "k8s.io/api/networking/v1"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestOnlyItsEnvoysReachSpillway: a port on every interface comes with a policy that names who may connect to it.
func TestOnlyItsEnvoysReachSpillway(t *testing.T) {
	check := func(t *testing.T, p pod, all []document) {
		t.Helper()
		port := "8081"
		if p.env("HOST", "") != "" {
			port = "8080" // of /json
		} else if p.env("GRPC_HOST", "127.0.0.1") == "127.0.0.1" {
			return
		}
		held := false
		for _, d := range all {
			switch policy := d.object.(type) {
			case *network.NetworkPolicy:
				held = held || policy.Spec.PodSelector.MatchLabels["app"] == p.Labels["app"] &&
					networkHolds(t, policy, port)
			case *security.AuthorizationPolicy:
				held = held || policy.Selector.GetMatchLabels()["app"] == p.Labels["app"] && meshHolds(t, policy, port)
			}
		}
		if !held {
			t.Error("the port is open to every pod of the cluster")
		}
	}
	eachPod(t, check)
	t.Run("envoy-gateway", func(t *testing.T) {
		all := documents(t, gatewayFile(t, "spillway.yaml"))
		check(t, podOf(t, all), all)
	})
}

// networkHolds reports whether a policy lets chosen pods alone connect to a port.
func networkHolds(t *testing.T, policy *network.NetworkPolicy, port string) bool {
	t.Helper()
	if !slices.Equal(policy.Spec.PolicyTypes, []network.PolicyType{network.PolicyTypeIngress}) {
		t.Errorf("the policy is for %v: it would also cut Spillway off from Redis, or hold nothing",
			policy.Spec.PolicyTypes)
	}
	found := false
	for _, rule := range policy.Spec.Ingress {
		if len(rule.Ports) == 0 {
			t.Errorf("the rule %v is for every port", rule)
		}
		for _, one := range rule.Ports {
			if strconv.Itoa(one.Port.IntValue()) != port {
				continue
			}
			found = true
			for _, from := range rule.From {
				if from.PodSelector == nil || len(from.PodSelector.MatchLabels) == 0 {
					t.Errorf("the rule %v lets every pod ask", rule)
				}
			}
			if len(rule.From) == 0 {
				t.Errorf("the rule %v lets every caller ask", rule)
			}
		}
	}
	return found
}

// meshHolds reports whether a policy lets callers with chosen certificates alone connect to a port.
func meshHolds(t *testing.T, policy *security.AuthorizationPolicy, port string) bool {
	t.Helper()
	if policy.Action != security.AuthorizationPolicy_ALLOW {
		return false
	}
	found := false
	for _, rule := range policy.Rules {
		for _, to := range rule.To {
			if len(to.Operation.Ports) == 0 {
				t.Errorf("the rule %v is for every port", rule)
			}
			if !slices.Contains(to.Operation.Ports, port) {
				continue
			}
			found = len(rule.From) > 0
			for _, from := range rule.From {
				if len(from.Source.GetPrincipals()) == 0 || slices.Contains(from.Source.GetPrincipals(), "*") {
					t.Errorf("the rule %v lets every workload ask", rule)
				}
			}
		}
	}
	return found
}

// TestAMadeUpAddressIsNoOtherClient: Istio's sidecars pass on the x-forwarded-for of a caller.
func TestAMadeUpAddressIsNoOtherClient(t *testing.T) {
	for _, name := range []string{"ext-authz.yaml", "ambient.yaml"} {
		t.Run(name, func(t *testing.T) {
			w := start(t, name)
			inside(t)
			w.wants(t, 100, http.StatusOK, request{path: "/"})
			refused := 0
			for i := range 30 {
				got := w.get(t, request{"/", "x-forwarded-for", "203.0.113." + strconv.Itoa(i)})
				if got.StatusCode == http.StatusTooManyRequests {
					refused++
				}
			}
			if refused == 0 {
				t.Error("30 made-up addresses passed a spent limit: each was a fresh client")
			}
			// Behind the gateway, whose addresses the reader has named, clients are told apart.
			w.rules.change(t, "10.1.2.0/24", "127.0.0.0/8")
			w.awaitOther(t)
			w.wantsNoErrors(t)
		})
	}
}

// awaitOther waits until a client behind the gateway has a limit of its own.
func (w *world) awaitOther(t *testing.T) {
	t.Helper()
	servers.Await(t, "the changed ConfigMap", func() error {
		got, err := w.try(request{"/", "x-forwarded-for", "203.0.113.77"})
		if err == nil && (got.StatusCode != http.StatusOK || !strings.HasPrefix(got.Header.Get("x-ratelimit-remaining"),
			"9")) {
			err = fmt.Errorf("%s, %s left", got.Status, got.Header.Get("x-ratelimit-remaining"))
		}
		return err
	})
}
