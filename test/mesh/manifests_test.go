package mesh

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// values are files for Helm, and configurations that no API server sees.
var values = map[string]bool{"mesh-values.yaml": true, "envoy-gateway.yaml": true}

// readersOwn is the Deployment that the examples for pods add a container to.
const readersOwn = `apiVersion: apps/v1
kind: Deployment
metadata: {name: checkout, namespace: shop}
spec:
  selector: {matchLabels: {app: checkout}}
  template:
    metadata: {labels: {app: checkout}}
    spec: {containers: [{name: checkout, image: "checkout:v1", ports: [{containerPort: 8080}]}]}
`

// TestEveryManifestIsTaken applies all examples and all renderings of the chart as `kubectl apply --server-side` does.
func TestEveryManifestIsTaken(t *testing.T) {
	c := startCluster(t)
	take := func(name string, all []object) {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "istio") {
				c.mustApplyAs(t, "reader", parse(t, readersOwn)...)
			}
			if len(all) == 0 {
				t.Fatal("it has no manifest")
			}
			c.mustApply(t, all...)
			checkout := object{"apiVersion": "apps/v1", "kind": "Deployment",
				"metadata": map[string]any{"name": "checkout", "namespace": "shop"}}
			for _, o := range all {
				if o.String() == checkout.String() && len(containers(c.get(t, o))) != 1 {
					t.Error("the reader's own container is gone")
				}
			}
			c.remove(t, inOneGo(all)...)
		})
	}
	for _, part := range []string{"istio", "envoy-gateway"} {
		for file, all := range examples(t, part) {
			if !values[file] {
				take(part+"/"+file, all)
			}
		}
	}
	for _, file := range must.Get(filepath.Glob(chartFolder(t) + "/ci/*.yaml"))(t) {
		take("chart/"+filepath.Base(file), render(t, "-f", file))
	}
	t.Run("a mistake", func(t *testing.T) { seesMistakes(t, c) })
}

func containers(deployment object) []any {
	list, _ := deployment.at("spec", "template", "spec", "containers").([]any)
	return list
}

// inOneGo are the objects but for namespaces, which nothing empties here.
func inOneGo(all []object) []object {
	var rest []object
	for _, o := range all {
		if o.text("kind") != "Namespace" {
			rest = append(rest, o)
		}
	}
	return rest
}

// seesMistakes changes one word of a good manifest at a time: what passes here would pass unseen above.
func seesMistakes(t *testing.T, c *cluster) {
	good := read(t, servers.Root(t), "examples", "istio", "rls-namespace.yaml")
	for _, o := range parse(t, readersOwn) {
		c.mustApply(t, o)
	}
	for name, change := range map[string][2]string{
		"a field of a Deployment":   {"replicas:", "replicaz:"},
		"a field of a container":    {"readinessProbe:", "readinesProbe:"},
		"a value of a Service":      {"port: 8081, targetPort", "port: 80810, targetPort"},
		"a field of an EnvoyFilter": {"workloadSelector:", "workloadSelectors:"},
		"a value of an EnvoyFilter": {"INSERT_BEFORE", "INSERT_BESIDE"},
		"a duration of Istio":       {"interval: 1s", "interval: soon"},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if bad == good {
			t.Fatalf("%s: %q is not in the manifest", name, change[0])
		}
		refused := false
		for _, o := range parse(t, bad) {
			refused = refused || c.apply(o) != nil
		}
		if !refused {
			t.Errorf("%s: taken as good", name)
		}
	}
}

func chartFolder(t *testing.T) string {
	t.Helper()
	return filepath.Join(servers.Root(t), "deploy", "helm", "spillway")
}

// render is `helm template`, with the versions of the API server.
func render(t *testing.T, args ...string) []object {
	t.Helper()
	cmd := exec.Command(program(t, "helm", "helm"),
		append([]string{"template", "edge", chartFolder(t), "--namespace", "shop"}, args...)...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	text := must.Get(cmd.Output())(t)
	return parse(t, string(text))
}

// example is the text of a file of examples/istio.
func example(t *testing.T, name string) string {
	t.Helper()
	return read(t, servers.Root(t), "examples", "istio", name)
}
