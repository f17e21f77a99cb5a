package manifests

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		p := pod{PodTemplateSpec: deployment.Spec.Template, native: len(deployment.Spec.Template.Spec.InitContainers) >
			0}
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

// eachPod runs a test for the pod of every file that has one.
func eachPod(t *testing.T, run func(t *testing.T, p pod, all []document)) {
	t.Helper()
	for _, name := range exampleFiles(t) {
		text := example(t, name)
		if !strings.Contains(text, "kind: Deployment") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			all := documents(t, text)
			run(t, podOf(t, all), all)
		})
	}
}

func TestContainersAreConfined(t *testing.T) {
	eachPod(t, func(t *testing.T, p pod, _ []document) {
		c := p.spillway
		s := c.SecurityContext
		if !*s.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || *s.RunAsUser == 0 ||
			*s.RunAsUser == 1337 {
			t.Errorf("the container may more than it needs: %v", s)
		}
		if !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) ||
			s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("the container may more than it needs: %v", s)
		}
		if !slices.Equal(c.ReadinessProbe.Exec.Command, []string{"/bin/sidecar", "healthcheck"}) {
			t.Errorf("the readiness probe runs %v", c.ReadinessProbe.Exec)
		}
		// A sidecar without good rules is not ready, and a restart would not mend them.
		for _, probe := range []*core.Probe{c.StartupProbe, c.LivenessProbe} {
			if !slices.Equal(probe.Exec.Command, []string{"/bin/sidecar", "healthcheck", "live"}) {
				t.Errorf("a probe runs %v", probe.Exec)
			}
		}
		if p.env("RULES_REQUIRED", "") != "true" {
			t.Error("a ConfigMap with a mistake would roll out: RULES_REQUIRED is not set")
		}
		if p.native && (c.RestartPolicy == nil || *c.RestartPolicy != core.ContainerRestartPolicyAlways) {
			t.Error("an init container that is not restarted always is not a sidecar: the application would wait for " +
				"its end")
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
			if m.SubPath != "" || !slices.ContainsFunc(p.Spec.Volumes, func(v core.Volume) bool {
				return v.Name == m.Name
			}) {
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
			if !slices.ContainsFunc(all, func(d document) bool {
				return d.Kind == "ConfigMap" && d.Name == v.ConfigMap.Name
			}) {
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
		if socket := p.env("GRPC_UDS", ""); socket != "" && !slices.ContainsFunc(p.spillway.VolumeMounts,
			func(m core.VolumeMount) bool {
				return m.MountPath == path.Dir(socket) && proxys[m.Name].MountPath == m.MountPath
			}) {
			t.Errorf("the folder of %s is not shared with Istio's container", socket)
		}
	})
}

func TestEnvoyAsksWhereSpillwayListens(t *testing.T) {
	providers := providersOf(t, example(t, meshValues))
	for _, name := range sidecarFiles(t) {
		all := documents(t, example(t, name))
		p := podOf(t, all)
		want := fmt.Sprintf("map[socket_address:map[address:127.0.0.1 port_value:%s]]", p.env("GRPC_PORT", "8081"))
		if socket := p.env("GRPC_UDS", ""); socket != "" {
			want = fmt.Sprintf("map[pipe:map[path:%s]]", socket)
		}
		got := fmt.Sprint(endpoint(t, assemble(t, all, providers).spillway(t))["address"])
		if got != want {
			t.Errorf("%s: Envoy asks at %s, Spillway listens at %s", name, got, want)
		}
	}
}

// The Deployments of pods with an application are applied over the reader's own. So they hold nothing but what is
// Spillway's by name, in lists that Kubernetes merges by name.
func TestPartsChangeNothingOfTheReaders(t *testing.T) {
	for _, name := range []string{"rls-socket.yaml", "rls-loopback.yaml", "ext-authz.yaml"} {
		t.Run(name, func(t *testing.T) {
			all := documents(t, example(t, name))
			p := podOf(t, all)
			rest := p.PodTemplateSpec
			for _, c := range rest.Spec.InitContainers {
				wantsSpillways(t, c.Name)
			}
			for _, v := range rest.Spec.Volumes {
				wantsSpillways(t, v.Name)
			}
			rest.Annotations, rest.Spec.InitContainers, rest.Spec.Volumes = nil, nil, nil
			want := apps.Deployment{TypeMeta: meta.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
				ObjectMeta: meta.ObjectMeta{Name: "checkout", Namespace: "shop"}}
			want.Spec.Template = rest
			i := slices.IndexFunc(all, func(d document) bool { return d.Kind == "Deployment" })
			got := all[i].object.(*apps.Deployment).DeepCopy()
			got.Spec.Template = rest
			if !reflect.DeepEqual(*got, want) || !reflect.DeepEqual(rest, core.PodTemplateSpec{}) {
				t.Errorf("the part sets more than containers, volumes and annotations: %v", got)
			}
		})
	}
	for _, list := range []string{"InitContainers", "Volumes"} {
		field, _ := reflect.TypeFor[core.PodSpec]().FieldByName(list)
		if !strings.HasPrefix(field.Tag.Get("patchStrategy"), "merge") || field.Tag.Get("patchMergeKey") != "name" {
			t.Errorf("Kubernetes does not merge %s by name", list)
		}
	}
}

func wantsSpillways(t *testing.T, name string) {
	t.Helper()
	if !strings.HasPrefix(name, "spillway") {
		t.Errorf("%s is no name of Spillway's: the reader may have one", name)
	}
}
