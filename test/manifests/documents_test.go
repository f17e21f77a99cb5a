// Package manifests tests examples/istio and examples/envoy-gateway: every manifest against the types of Kubernetes,
// Istio and Envoy Gateway, every patch against Envoy, and the whole of each file with requests through a real Envoy and
// a real sidecar. It is a module of its own, so that those types stay out of the product's.
package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	extensions "istio.io/api/extensions/v1alpha1"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	envoygateway "github.com/envoyproxy/gateway/api/v1alpha1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// document is one manifest.
type document struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`

	object any // a pointer to the type of Kubernetes, or of the spec of Istio
}

// istioKinds are the kinds of Istio that the examples may use, with the type of their spec.
var istioKinds = map[string]proto.Message{
	"networking.istio.io/v1alpha3 EnvoyFilter": new(networking.EnvoyFilter),
	"networking.istio.io/v1 ServiceEntry":      new(networking.ServiceEntry),
	"networking.istio.io/v1 DestinationRule":   new(networking.DestinationRule),
	"security.istio.io/v1 AuthorizationPolicy": new(security.AuthorizationPolicy),

	"extensions.istio.io/v1alpha1 TrafficExtension": new(extensions.TrafficExtension),
}

// kubernetes decodes kinds of Kubernetes, of the Gateway API and of Envoy Gateway. An unknown kind or field is an
// error.
var kubernetes = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, apps.AddToScheme, network.AddToScheme,
		gateway.Install, envoygateway.AddToScheme} {
		err := add(scheme)
		if err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// decode reads one manifest, strictly.
func decode(text string) (document, error) {
	var d document
	wire, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return d, err
	}
	err = json.Unmarshal(wire, &d)
	if err != nil {
		return d, err
	}
	kind, found := istioKinds[d.APIVersion+" "+d.Kind]
	if !found {
		d.object, _, err = kubernetes.Decode(wire, nil, nil)
		return d, err
	}
	var parts struct {
		meta.TypeMeta   `json:",inline"`
		meta.ObjectMeta `json:"metadata"`
		Spec            json.RawMessage `json:"spec"`
	}
	err = strictly(wire, &parts)
	if err != nil {
		return d, err
	}
	spec := proto.Clone(kind)
	d.object = spec
	return d, decodeMessage(parts.Spec, spec)
}

// decodeMeshConfig reads the values of Istio's chart, strictly: nothing but meshConfig is expected there.
func decodeMeshConfig(text string) (*mesh.MeshConfig, error) {
	wire, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	var values struct {
		MeshConfig json.RawMessage `json:"meshConfig"`
	}
	err = strictly(wire, &values)
	if err != nil {
		return nil, err
	}
	config := new(mesh.MeshConfig)
	return config, decodeMessage(values.MeshConfig, config)
}

// strictly is json.Unmarshal as the API server does it: unknown fields, duplicates and other cases of letters are
// errors.
func strictly(wire []byte, into any) error {
	problems, err := kjson.UnmarshalStrict(wire, into)
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("%v", problems)
	}
	return err
}

// decodeMessage reads a message of Istio. protojson takes the names of the protocol buffer too (fail_open), which the
// API server drops, so what was read is written again and must have every key.
func decodeMessage(wire []byte, into proto.Message) error {
	err := protojson.Unmarshal(wire, into)
	if err != nil {
		return err
	}
	again, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(into)
	if err != nil {
		return err
	}
	var given, own any
	err = json.Unmarshal(wire, &given)
	if err != nil {
		return err
	}
	err = json.Unmarshal(again, &own)
	if err != nil {
		return err
	}
	return spelling(given, own, "spec")
}

// spelling returns an error for a key of given that own does not have at the same place.
func spelling(given, own any, at string) error {
	switch given := given.(type) {
	case map[string]any:
		own, _ := own.(map[string]any)
		for key, value := range given {
			known, found := own[key]
			if !found {
				return fmt.Errorf("%s: %q is not a field in the API's spelling", at, key)
			}
			err := spelling(value, known, at+"."+key)
			if err != nil {
				return err
			}
		}
	case []any:
		own, _ := own.([]any)
		for i, value := range given {
			err := spelling(value, own[i], fmt.Sprintf("%s[%d]", at, i))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

const meshValues = "mesh-values.yaml"

// exampleFiles are the names of the manifests that a reader copies.
func exampleFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(servers.Root(t), "examples", "istio"))
	if err != nil {
		t.Fatalf("read the examples: %v", err)
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); name != meshValues && filepath.Ext(name) == ".yaml" {
			names = append(names, name)
		}
	}
	if len(names) < 5 {
		t.Fatalf("only %v in examples/istio", names)
	}
	return names
}

// sidecarFiles are those for sidecars and ext_authz, which this package serves. The others are served in test/mesh, by
// a real istiod.
func sidecarFiles(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(exampleFiles(t), func(name string) bool {
		return slices.Contains([]string{"ai-tokens.yaml", "ingress-gateway.yaml", "waypoint.yaml"}, name)
	})
}

// example is the text of a file.
func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(servers.Root(t), "examples", "istio", name))
	if err != nil {
		t.Fatalf("read an example: %v", err)
	}
	return string(text)
}

// documents are the manifests of a text.
func documents(t *testing.T, text string) []document {
	t.Helper()
	var all []document
	for part := range strings.SplitSeq(text, "\n---\n") {
		d, err := decode(part)
		if err != nil {
			t.Fatalf("%s %s: %v", d.Kind, d.Name, err)
		}
		all = append(all, d)
	}
	return all
}

func TestEveryManifestIsOfTheAPI(t *testing.T) {
	for _, name := range exampleFiles(t) {
		t.Run(name, func(t *testing.T) {
			for _, d := range documents(t, example(t, name)) {
				if d.Kind != "Namespace" && d.Namespace == "" {
					t.Errorf("%s %s names no namespace: it would land in whichever is current", d.Kind, d.Name)
				}
			}
		})
	}
}

func TestMeshConfigIsOfTheAPI(t *testing.T) {
	_, err := decodeMeshConfig(example(t, meshValues))
	if err != nil {
		t.Error(err)
	}
}

// What would pass here would pass unseen in the examples.
func TestMistakesAreSeen(t *testing.T) {
	const policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: a}\n"
	for name, text := range map[string]string{
		"unknown kind":         "apiVersion: v1\nkind: Pood\nmetadata: {name: a}\n",
		"unknown version":      "apiVersion: networking.istio.io/v7\nkind: EnvoyFilter\nmetadata: {name: a}\n",
		"field of Kubernetes":  "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {portz: []}\n",
		"its case":             "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {Ports: []}\n",
		"key twice":            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [], ports: []}\n",
		"field of Istio":       policy + "spec: {providers: {name: b}}\n",
		"field of Istio, deep": policy + "spec: {rules: [{to: [{operation: {notPath: [\"/a\"]}}]}]}\n",
		"name of the buffer":   policy + "spec: {target_refs: [{kind: Gateway, name: a}]}\n",
		"value of Istio":       policy + "spec: {action: CUSTOMISED}\n",
		"metadata": "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n" +
			"metadata: {naem: a}\nspec: {}\n",
		"beside the spec of Istio": policy + "specs: {}\n",
	} {
		_, err := decode(text)
		if err == nil {
			t.Errorf("%s: taken as good:\n%s", name, text)
		}
	}
	for name, text := range map[string]string{
		"beside meshConfig":  "meshConfigs: {}\n",
		"field":              "meshConfig: {extensionProviders: [{name: a, envoyExtAuthzGrpc: {failsOpen: true}}]}\n",
		"name of the buffer": "meshConfig: {extensionProviders: [{name: a, envoyExtAuthzGrpc: {fail_open: true}}]}\n",
	} {
		_, err := decodeMeshConfig(text)
		if err == nil {
			t.Errorf("mesh config, %s: taken as good:\n%s", name, text)
		}
	}
}
