// Package chart tests deploy/helm/spillway with helm itself: every rendering against the types of Kubernetes and of the
// Prometheus operator, its environment and its rules by a real sidecar. It is a module of its own, so that those types
// stay out of the product's.
package chart

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// chartDir is the chart's folder.
func chartDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(servers.Root(t), "deploy", "helm", "spillway")
}

// helm runs the program that `make tools` builds from helm's Go module.
func helm(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	program := os.Getenv("HELM_BIN")
	if program == "" {
		program = filepath.Join(servers.Root(t), ".tools", "helm", "helm")
	}
	cmd := exec.Command(program, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECONFIG="+filepath.Join(home, "none"))
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("start helm: %v (make tools builds it)", err)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, problems.String())
	}
	return out.String(), err
}

// kubernetes decodes kinds of Kubernetes and of the Prometheus operator. An unknown kind or field is an error.
var kubernetes = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, apps.AddToScheme, batch.AddToScheme, network.AddToScheme,
		policy.AddToScheme, autoscaling.AddToScheme,
		monitoring.AddToScheme,
	} {
		err := add(scheme)
		if err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// decode reads one manifest, strictly.
func decode(text string) (runtime.Object, error) {
	wire, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	object, _, err := kubernetes.Decode(wire, nil, nil)
	return object, err
}

const (
	releaseName = "edge"
	nameLabel   = "app.kubernetes.io/name"
	namespace   = "shop"
)

// rendering is what `helm template` makes of a file of values.
type rendering struct {
	objects []runtime.Object
}

// render runs `helm template` and decodes all objects.
func render(t *testing.T, args ...string) rendering {
	t.Helper()
	text, err := helm(t, append([]string{"template", releaseName, chartDir(t), "--namespace", namespace}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var r rendering
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		object, err := decode(part)
		if err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		r.objects = append(r.objects, object)
	}
	return r
}

// one is the only object of a type that is not the control's, or nil.
func one[T runtime.Object](t *testing.T, r rendering) (found T) {
	t.Helper()
	return only[T](t, r, "spillway")
}

// only is the only object of a type with that name as its label, or nil.
func only[T runtime.Object](t *testing.T, r rendering, name string) (found T) {
	t.Helper()
	seen := 0
	for _, object := range r.objects {
		is, ok := object.(T)
		if ok && object.(meta.Object).GetLabels()[nameLabel] == name {
			found = is
			seen++
		}
	}
	if seen > 1 {
		t.Fatalf("%d objects are a %T", seen, found)
	}
	return found
}

// configMap is the ConfigMap whose name ends so, or nil.
func configMap(r rendering, suffix string) *core.ConfigMap {
	for _, object := range r.objects {
		if c, is := object.(*core.ConfigMap); is && strings.HasSuffix(c.Name, suffix) {
			return c
		}
	}
	return nil
}

// pod is the pod that has Spillway: that of the Deployment, or what Istio adds to a workload's pods.
func pod(t *testing.T, r rendering) core.PodSpec {
	t.Helper()
	if deployment := one[*apps.Deployment](t, r); deployment != nil {
		return deployment.Spec.Template.Spec
	}
	return injected(t, r, nil).Spec
}

// injected runs the template that the rendering has for Istio, with the pod's annotations, as Istio's injector does.
func injected(t *testing.T, r rendering, annotations map[string]string) *core.Pod {
	t.Helper()
	var values struct {
		SidecarInjectorWebhook struct {
			Templates map[string]string `json:"templates"`
		} `json:"sidecarInjectorWebhook"`
	}
	err := yaml.UnmarshalStrict([]byte(configMap(r, "-injection").Data["istiod-values.yaml"]), &values)
	if err != nil || len(values.SidecarInjectorWebhook.Templates) != 1 {
		t.Fatalf("the values for istiod hold %v: %v", values, err)
	}
	var text strings.Builder
	for name, body := range values.SidecarInjectorWebhook.Templates {
		parsed, err := template.New(name).Funcs(template.FuncMap{"annotation": annotation}).Parse(body)
		if err == nil {
			err = parsed.Execute(&text, struct{ ObjectMeta meta.ObjectMeta }{meta.ObjectMeta{Annotations: annotations}})
		}
		if err != nil {
			t.Fatalf("the template %s: %v", name, err)
		}
	}
	object, err := decode("apiVersion: v1\nkind: Pod\n" + text.String())
	if err != nil {
		t.Fatalf("what Istio would add to a pod: %v in\n%s", err, text.String())
	}
	return object.(*core.Pod)
}

// annotation is Istio's function of that name.
func annotation(of meta.ObjectMeta, name string, otherwise any) string {
	if value, found := of.Annotations[name]; found {
		return value
	}
	return fmt.Sprint(otherwise)
}

// container is Spillway's.
func container(t *testing.T, of core.PodSpec) core.Container {
	t.Helper()
	for _, c := range append(of.InitContainers, of.Containers...) {
		if c.Name == "spillway" {
			return c
		}
	}
	t.Fatal("no container is called spillway")
	return core.Container{}
}

// valueFiles are those of the folder ci, and "" for the chart's own.
func valueFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir(t), "ci", "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("the chart has %d files of values in ci, want ten: %v", len(files), err)
	}
	return append(files, "")
}

// rendered are the renderings of the files of values so far, by file.
var rendered = map[string]rendering{}

// eachRendering runs a test for the rendering of every file of values, which no test changes.
func eachRendering(t *testing.T, run func(t *testing.T, r rendering)) {
	t.Helper()
	for _, file := range valueFiles(t) {
		var args []string
		name := "values.yaml"
		if file != "" {
			args, name = []string{"--values", file}, filepath.Base(file)
		}
		t.Run(name, func(t *testing.T) {
			r, done := rendered[file]
			if !done {
				r = render(t, args...)
				rendered[file] = r
			}
			run(t, r)
		})
	}
}
