package manifests

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// pod is the pod that has Spillway in a file.
type pod struct {
	core.PodTemplateSpec
	spillway core.Container
	native   bool // its container is a native sidecar, beside an application of the reader's
}

func podOf(t *testing.T, all []document) pod {
	t.Helper()
	for _, d := range all {
		deployment, found := d.object.(*apps.Deployment)
		if !found {
			continue
		}
		p := pod{PodTemplateSpec: deployment.Spec.Template, native: len(deployment.Spec.Template.Spec.InitContainers) > 0}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			if c.Name == "spillway" {
				p.spillway = c
				return p
			}
		}
	}
	t.Fatal("no Deployment has a container spillway")
	return pod{}
}

// env is the value of a variable, or what the sidecar takes without it.
func (p pod) env(name, unset string) string {
	for _, e := range p.spillway.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return unset
}

// eachPod runs a test for the pod of every file.
func eachPod(t *testing.T, run func(t *testing.T, p pod, all []document)) {
	t.Helper()
	for _, name := range exampleFiles(t) {
		t.Run(name, func(t *testing.T) {
			all := documents(t, example(t, name))
			run(t, podOf(t, all), all)
		})
	}
}

func TestContainersAreConfined(t *testing.T) {
	eachPod(t, func(t *testing.T, p pod, _ []document) {
		c := p.spillway
		s := c.SecurityContext
		if !*s.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || *s.RunAsUser == 0 || *s.RunAsUser == 1337 {
			t.Errorf("the container may more than it needs: %v", s)
		}
		if !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("the container may more than it needs: %v", s)
		}
		for _, probe := range []*core.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if !slices.Equal(probe.Exec.Command, []string{"/bin/sidecar", "healthcheck"}) {
				t.Errorf("a probe runs %v", probe.Exec)
			}
		}
		if p.native && (c.RestartPolicy == nil || *c.RestartPolicy != core.ContainerRestartPolicyAlways) {
			t.Error("an init container that is not restarted always is no sidecar: the application would wait for its end")
		}
		if p.native && (p.env("HOST", "") != "" || p.env("GRPC_HOST", "") != "") {
			t.Error("in the application's pod Spillway is for the pod alone")
		}
	})
}

func TestVolumesAreThere(t *testing.T) {
	eachPod(t, func(t *testing.T, p pod, all []document) {
		mounts := map[string]string{}
		for _, m := range p.spillway.VolumeMounts {
			mounts[m.Name] = m.MountPath
			if m.SubPath != "" || !slices.ContainsFunc(p.Spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("the mount %v is of no volume, or of a part that is never updated", m)
			}
		}
		for _, v := range p.Spec.Volumes {
			if v.ConfigMap == nil {
				continue
			}
			if mounts[v.Name] != p.env("RULES", "") {
				t.Errorf("rules are read from %s and mounted at %s", p.env("RULES", ""), mounts[v.Name])
			}
			if !slices.ContainsFunc(all, func(d document) bool { return d.Kind == "ConfigMap" && d.Name == v.ConfigMap.Name }) {
				t.Errorf("there is no ConfigMap %s", v.ConfigMap.Name)
			}
		}
		// What Istio mounts into its own container.
		var proxys map[string]core.VolumeMount
		if text := p.Annotations["sidecar.istio.io/userVolumeMount"]; text != "" {
			err := strictly([]byte(text), &proxys)
			if err != nil {
				t.Errorf("the annotation with Istio's mounts: %v", err)
			}
		}
		for name, m := range proxys {
			if mounts[name] != m.MountPath {
				t.Errorf("%s is at %s for Istio and at %q for Spillway", name, m.MountPath, mounts[name])
			}
		}
		if socket := p.env("GRPC_UDS", ""); socket != "" && !slices.ContainsFunc(p.spillway.VolumeMounts, func(m core.VolumeMount) bool {
			return m.MountPath == path.Dir(socket) && proxys[m.Name].MountPath == m.MountPath
		}) {
			t.Errorf("the folder of %s is not shared with Istio's container", socket)
		}
	})
}

func TestEnvoyAsksWhereSpillwayListens(t *testing.T) {
	providers := providersOf(t, example(t, meshValues))
	eachPod(t, func(t *testing.T, p pod, all []document) {
		want := fmt.Sprintf("map[socket_address:map[address:127.0.0.1 port_value:%s]]", p.env("GRPC_PORT", "8081"))
		if socket := p.env("GRPC_UDS", ""); socket != "" {
			want = fmt.Sprintf("map[pipe:map[path:%s]]", socket)
		}
		got := fmt.Sprint(endpoint(t, assemble(t, all, providers).spillway(t))["address"])
		if got != want {
			t.Errorf("Envoy asks at %s, Spillway listens at %s", got, want)
		}
	})
}

// theirs is a Deployment as a reader has it.
const theirs = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: checkout, namespace: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: checkout}}
  template:
    metadata: {labels: {app: checkout}, annotations: {theirs: kept}}
    spec:
      initContainers: [{name: migrate, image: migrate}]
      containers: [{name: app, image: app, volumeMounts: [{name: data, mountPath: /data}]}]
      volumes: [{name: data, emptyDir: {}}]
`

func TestPartsMergeIntoADeployment(t *testing.T) {
	for _, name := range []string{"rls-socket.yaml", "rls-loopback.yaml", "ext-authz.yaml"} {
		t.Run(name, func(t *testing.T) {
			var part []byte
			for text := range strings.SplitSeq(example(t, name), "\n---\n") {
				if strings.Contains(text, "kind: Deployment") {
					part = inJSON(t, text)
				}
			}
			merged, err := strategicpatch.StrategicMergePatch(inJSON(t, theirs), part, apps.Deployment{})
			if err != nil {
				t.Fatalf("merge: %v", err)
			}
			var got apps.Deployment
			err = strictly(merged, &got)
			if err != nil {
				t.Fatalf("what came out: %v", err)
			}
			spec := got.Spec.Template.Spec
			mine := podOf(t, []document{{object: &got}})
			if *got.Spec.Replicas != 3 || got.Spec.Template.Annotations["theirs"] != "kept" || len(spec.Containers) != 1 || len(spec.InitContainers) != 2 {
				t.Errorf("not all of theirs is left: %s", merged)
			}
			if mine.spillway.Image == "" || len(spec.Volumes) != 1+len(mine.spillway.VolumeMounts) {
				t.Errorf("not all of Spillway's is there: %s", merged)
			}
		})
	}
}

func inJSON(t *testing.T, text string) []byte {
	t.Helper()
	wire, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil || !json.Valid(wire) {
		t.Fatalf("no YAML: %v", err)
	}
	return wire
}
