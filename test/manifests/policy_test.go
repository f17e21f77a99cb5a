package manifests

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/spillway-mesh/spillway/test/must"
)

// providers are the extension providers of the mesh, by name.
type providers map[string]*mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider

// providersOf reads them from the values of Istio's chart.
func providersOf(t *testing.T, text string) providers {
	t.Helper()
	config := must.Get(decodeMeshConfig(text))(t)
	all := providers{}
	for _, p := range config.ExtensionProviders {
		all[p.Name] = p.GetEnvoyExtAuthzGrpc()
	}
	return all
}

// addPolicy adds what Istio makes of a policy with the action CUSTOM: a filter that marks the requests which its rules
// match, and ext_authz for those that are marked.
func (p *proxy) addPolicy(t *testing.T, d document, all providers) {
	t.Helper()
	policy := d.object.(*security.AuthorizationPolicy)
	if policy.Action == security.AuthorizationPolicy_ALLOW && policy.Selector.GetMatchLabels()["app"] == "spillway" {
		return // it is about Spillway's own pods: see TestOnlyItsEnvoysReachSpillway
	}
	if policy.Action != security.AuthorizationPolicy_CUSTOM {
		t.Fatalf("this test does not know the action %v", policy.Action)
	}
	provider := all[policy.GetProvider().GetName()]
	if provider == nil {
		t.Fatalf("the mesh has no provider %q: Istio would refuse every request", policy.GetProvider().GetName())
	}
	const rbac = "envoy.filters.http.rbac"
	policies := fields{}
	for i, rule := range policy.Rules {
		name := fmt.Sprintf("istio-ext-authz-ns[%s]-policy[%s]-rule[%d]", d.Namespace, d.Name, i)
		policies[name] = fields{"permissions": []any{permission(t, rule)}, "principals": []any{fields{"any": true}}}
	}
	mark := fields{"name": rbac, "typed_config": fields{
		"@type":        "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
		"shadow_rules": fields{"action": "DENY", "policies": policies}, "shadow_rules_stat_prefix": "istio_ext_authz_",
	}}
	cluster := clusterOf(d, provider)
	ask := fields{"name": "envoy.filters.http.ext_authz", "typed_config": fields{
		"@type":                 "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
		"transport_api_version": "V3", "failure_mode_allow": provider.FailOpen,
		"status_on_error": fields{"code": status(provider)},
		"grpc_service": fields{
			"envoy_grpc": fields{"cluster_name": cluster, "authority": strings.ReplaceAll(cluster, "|", "_.")},
			"timeout":    seconds(provider.Timeout),
		},
		"filter_enabled_metadata": fields{"filter": rbac,
			"path":  []any{fields{"key": "istio_ext_authz_shadow_effective_policy_id"}},
			"value": fields{"string_match": fields{"prefix": "istio-ext-authz"}}},
	}}
	p.filters = append([]any{mark, ask}, p.filters...)
}

// clusterOf is the cluster of a provider. A service in another namespace than the policy's is not what the examples
// mean: the entry is exported to its own alone.
func clusterOf(d document, provider *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider) string {
	host := strings.TrimPrefix(provider.Service, d.Namespace+"/")
	return fmt.Sprintf("outbound|%d||%s", provider.Port, host)
}

func status(provider *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider) any {
	if provider.StatusOnError == "" {
		return "Forbidden"
	}
	return map[string]string{"503": "ServiceUnavailable"}[provider.StatusOnError]
}

// permission is a rule in Envoy's words.
func permission(t *testing.T, rule *security.Rule) fields {
	t.Helper()
	var paths []any
	for _, to := range rule.To {
		for _, path := range to.Operation.NotPaths {
			paths = append(paths, fields{"url_path": fields{"path": fields{"exact": path}}})
		}
		if strings.Contains(fmt.Sprint(to.Operation.NotPaths), "*") ||
			!proto.Equal(to.Operation, &security.Operation{NotPaths: to.Operation.NotPaths}) {
			t.Errorf("this test knows exact notPaths, not %v", to.Operation)
		}
	}
	if len(paths) == 0 || len(rule.From) > 0 || len(rule.When) > 0 {
		t.Errorf("this test does not know the rule %v", rule)
	}
	return fields{"not_rule": fields{"or_rules": fields{"rules": paths}}}
}

func TestProvidersNeitherWaitNorBuffer(t *testing.T) {
	for name, p := range providersOf(t, example(t, meshValues)) {
		if p.Timeout == nil {
			t.Errorf("%s has no timeout: Istio's own is 600 s", name)
		}
		if p.IncludeRequestBodyInCheck != nil {
			t.Errorf("%s asks for bodies: Spillway needs none, and streams would hang", name)
		}
		if status(p) == nil {
			t.Errorf("%s answers with %s, which this test does not know", name, p.StatusOnError)
		}
	}
}
