package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/spillway-mesh/spillway/test/must"
)

func TestHelmLints(t *testing.T) {
	for _, file := range valueFiles(t) {
		args := []string{"lint", "--strict", chartDir(t)}
		if file != "" {
			args = append(args, "--values", file)
		}
		out, err := helm(t, args...)
		if err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(file), err, out)
		}
	}
}

func TestMistakesInManifestsAreSeen(t *testing.T) {
	for name, text := range map[string]string{
		"kind":      "apiVersion: v1\nkind: Pood\nmetadata: {name: a}\n",
		"field":     "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {portz: []}\n",
		"key twice": "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [], ports: []}\n",
		"field of a rule": "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: a}\n" +
			"spec: {groups: [{name: a, rulez: []}]}\n",
		"field of a target": "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: a}\n" +
			"spec: {selector: {}, endpoint: []}\n",
	} {
		_, err := decode(text)
		if err == nil {
			t.Errorf("%s: taken as good:\n%s", name, text)
		}
	}
}

// TestEveryRenderingIsOfTheAPI decodes each, and checks what the types cannot: names, namespaces and labels.
func TestEveryRenderingIsOfTheAPI(t *testing.T) {
	eachRendering(t, func(t *testing.T, r rendering) {
		seen := map[string]bool{}
		for _, object := range r.objects {
			of := object.(meta.Object)
			kind := object.GetObjectKind().GroupVersionKind().Kind
			if seen[kind+of.GetName()] || of.GetName() == "" || of.GetNamespace() == "" {
				t.Errorf("%s %q of namespace %q is there twice, or lacks a name or namespace", kind, of.GetName(),
					of.GetNamespace())
			}
			seen[kind+of.GetName()] = true
			if !strings.HasPrefix(of.GetLabels()[nameLabel], "spillway") ||
				of.GetLabels()["app.kubernetes.io/instance"] != releaseName {
				t.Errorf("%s %s has the labels %v", kind, of.GetName(), of.GetLabels())
			}
		}
		if len(r.objects) == 0 {
			t.Error("nothing is rendered")
		}
	})
}

func TestContainersAreConfined(t *testing.T) {
	eachRendering(t, func(t *testing.T, r rendering) {
		of := pod(t, r)
		c := container(t, of)
		s := c.SecurityContext
		if !*s.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || *s.RunAsUser != 65532 ||
			!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) ||
			s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("the container may more than it needs: %v", s)
		}
		if !slices.Equal(c.ReadinessProbe.Exec.Command, []string{"/bin/sidecar", "healthcheck"}) ||
			!slices.Equal(c.LivenessProbe.Exec.Command, []string{"/bin/sidecar", "healthcheck", "live"}) ||
			!slices.Equal(c.StartupProbe.Exec.Command, []string{"/bin/sidecar", "healthcheck", "live"}) {
			t.Errorf("the probes run %v, %v and %v", c.ReadinessProbe.Exec, c.LivenessProbe.Exec, c.StartupProbe.Exec)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("the container has the resources %v: its caches are bounded by its memory limit", c.Resources)
		}
		if len(of.InitContainers) > 0 {
			if c.RestartPolicy == nil || *c.RestartPolicy != core.ContainerRestartPolicyAlways {
				t.Error("an init container that is not restarted always is not a sidecar")
			}
			for _, e := range c.Env {
				if strings.HasSuffix(e.Name, "HOST") {
					t.Errorf("%s is set: in the application's pod Spillway is for the pod alone", e.Name)
				}
			}
		} else if of.AutomountServiceAccountToken == nil || *of.AutomountServiceAccountToken {
			t.Error("the pods have a token for the API of Kubernetes, which they do not need")
		}
	})
}

// TestVolumesAreMounted: every mount is of a volume and the other way round, and none is a subPath, which is never
// updated.
func TestVolumesAreMounted(t *testing.T) {
	eachRendering(t, func(t *testing.T, r rendering) {
		of := pod(t, r)
		mounts := container(t, of).VolumeMounts
		for _, m := range mounts {
			if m.SubPath != "" || !slices.ContainsFunc(of.Volumes, func(v core.Volume) bool {
				return v.Name == m.Name
			}) {
				t.Errorf("the mount %v is of no volume, or of a part that is never updated", m)
			}
		}
		for _, v := range of.Volumes {
			if !slices.ContainsFunc(mounts, func(m core.VolumeMount) bool { return m.Name == v.Name }) {
				t.Errorf("the volume %s is not mounted", v.Name)
			}
			if v.Name == "spillway-rules" && configMap(r, "-rules") != nil &&
				v.ConfigMap.Name != configMap(r, "-rules").Name {
				t.Errorf("rules are read from the ConfigMap %s, and written to another", v.ConfigMap.Name)
			}
		}
	})
}

// TestObjectsPointAtEachOther: selectors choose the pods, ports have the names and numbers of the container's.
func TestObjectsPointAtEachOther(t *testing.T) {
	eachRendering(t, func(t *testing.T, r rendering) {
		deployment := one[*apps.Deployment](t, r)
		if deployment == nil {
			return
		}
		labels := deployment.Spec.Template.Labels
		chosen := func(what string, selector map[string]string) {
			for name, value := range selector {
				if labels[name] != value || len(selector) == 0 {
					t.Errorf("%s selects %v, the pods have %v", what, selector, labels)
				}
			}
		}
		chosen("the Deployment", deployment.Spec.Selector.MatchLabels)
		service := one[*core.Service](t, r)
		chosen("the Service", service.Spec.Selector)
		ports := map[string]int32{}
		for _, p := range container(t, deployment.Spec.Template.Spec).Ports {
			ports[p.Name] = p.ContainerPort
		}
		for _, p := range service.Spec.Ports {
			if ports[p.TargetPort.StrVal] == 0 {
				t.Errorf("the Service's port %s leads to %v, the container has %v", p.Name, p.TargetPort, ports)
			}
		}
		if budget := one[*policy.PodDisruptionBudget](t, r); budget != nil {
			chosen("the PodDisruptionBudget", budget.Spec.Selector.MatchLabels)
		}
		if p := one[*network.NetworkPolicy](t, r); p != nil {
			chosen("the NetworkPolicy", p.Spec.PodSelector.MatchLabels)
			guards(t, p, ports)
		}
		if scaler := one[*autoscaling.HorizontalPodAutoscaler](t, r); (scaler != nil) !=
			(deployment.Spec.Replicas == nil) {
			t.Errorf("the Deployment has the replicas %v, and the autoscaler is %v: want one of the two",
				deployment.Spec.Replicas, scaler)
		}
		if m := one[*monitoring.ServiceMonitor](t, r); m != nil {
			for name, value := range m.Spec.Selector.MatchLabels {
				if service.Labels[name] != value {
					t.Errorf("the ServiceMonitor selects %v, the Service has %v", m.Spec.Selector.MatchLabels,
						service.Labels)
				}
			}
			if service.Labels[m.Spec.JobLabel] != "spillway" || ports[m.Spec.Endpoints[0].Port] == 0 {
				t.Errorf("the job is %q, which the alerts do not look for, or the port %q is not there",
					service.Labels[m.Spec.JobLabel], m.Spec.Endpoints[0].Port)
			}
		}
	})
}

// guards checks a policy: it is for chosen callers, for the container's ports and those of Istio before it, and leaves
// the way to Redis open.
func guards(t *testing.T, p *network.NetworkPolicy, ports map[string]int32) {
	t.Helper()
	if !slices.Equal(p.Spec.PolicyTypes, []network.PolicyType{network.PolicyTypeIngress}) {
		t.Errorf("the policy is for %v: it would cut Spillway off from Redis", p.Spec.PolicyTypes)
	}
	open := map[intstr.IntOrString]bool{}
	for _, rule := range p.Spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Errorf("the rule %v lets every caller connect, or to every port", rule)
		}
		for _, port := range rule.Ports {
			open[*port.Port] = true
		}
	}
	want := map[intstr.IntOrString]bool{intstr.FromInt32(15008): true}
	if ports["metrics"] != 0 {
		want[intstr.FromInt32(15020)] = true
	}
	for _, port := range ports {
		want[intstr.FromInt32(port)] = true
	}
	if !reflect.DeepEqual(open, want) {
		t.Errorf("the policy opens %v, the container has %v", open, ports)
	}
}

// TestRulesChangeWithoutARestart: the sidecar reads changed rules by itself, so the pods must not change with them.
func TestRulesChangeWithoutARestart(t *testing.T) {
	with := func(rules string) rendering { return render(t, "--set-string", "rules.files.a\\.yaml="+rules) }
	first, second := with("domain: a"), with("domain: b")
	if !reflect.DeepEqual(one[*apps.Deployment](t, first), one[*apps.Deployment](t, second)) {
		t.Error("the Deployment changes with the rules: its pods restart")
	}
	if reflect.DeepEqual(configMap(first, "-rules").Data, configMap(second, "-rules").Data) {
		t.Error("the rules are not those of the values")
	}
}

// TestPublishedRulesLieOverThoseOfFiles: where a control publishes rules, the example is not among them.
func TestPublishedRulesLieOverThoseOfFiles(t *testing.T) {
	published := []string{"--set", "rules.published=true,redis.addresses={redis:6379}"}
	for want, args := range map[string][]string{
		"/etc/spillway/rules":        nil,
		"redis:":                     published,
		"redis:,/etc/spillway/rules": append(slices.Clone(published), "--set", "rules.existingConfigMap=own"),
	} {
		for _, e := range container(t, pod(t, render(t, args...))).Env {
			if e.Name == "RULES" && e.Value != want {
				t.Errorf("with %v, RULES is %q, want %q", args, e.Value, want)
			}
		}
	}
}

// TestAWorkloadNamesItsRules: one template for the mesh, rules for each workload.
func TestAWorkloadNamesItsRules(t *testing.T) {
	r := render(t, "--set", "mode=sidecar")
	for want, annotations := range map[string]map[string]string{
		"edge-spillway-rules": nil, "checkout-limits": {"spillway-mesh/rules": "checkout-limits"},
	} {
		if got := injected(t, r, annotations).Spec.Volumes[0].ConfigMap.Name; got != want {
			t.Errorf("with the annotations %v the rules are those of %s, want %s", annotations, got, want)
		}
	}
}

// TestAlertsPassPromtool hands Prometheus' own checker what the operator would.
func TestAlertsPassPromtool(t *testing.T) {
	rule := one[*monitoring.PrometheusRule](t, render(t, "--set", "prometheusRule.enabled=true"))
	text := must.Get(yaml.Marshal(rule.Spec))(t)
	file := filepath.Join(t.TempDir(), "alerts.yaml")
	must.Do(t, os.WriteFile(file, text, 0o600))
	out, err := exec.Command("promtool", "check", "rules", file).CombinedOutput()
	if err != nil || len(rule.Spec.Groups[0].Rules) < 10 {
		t.Errorf("promtool on %d rules: %v\n%s", len(rule.Spec.Groups[0].Rules), err, out)
	}
}

// TestSeveralPodsShareARedis: where nothing names one there is one pod, because each would admit the whole limit.
func TestSeveralPodsShareARedis(t *testing.T) {
	for values, want := range map[string]int32{
		"":                           1,
		"replicaCount=5":             1,
		"replicaCount=0":             0,
		"redis.addresses={redis:1}":  2,
		"settings.REDIS_URL=redis:1": 2,
		"redis.url.existingSecret=a,replicaCount=3":      3,
		"extraEnv[0].name=REDIS_URL,extraEnv[0].value=a": 2,
	} {
		args := []string{"--set", values}
		if values == "" {
			args = nil
		}
		deployment := one[*apps.Deployment](t, render(t, args...))
		if got := *deployment.Spec.Replicas; got != want {
			t.Errorf("with %q there are %d pods, want %d", values, got, want)
		}
	}
}

// TestAPodsContainersMayNotOperate: in mode sidecar they share the loopback that the admin API answers.
func TestAPodsContainersMayNotOperate(t *testing.T) {
	for values, want := range map[string]string{
		"mode=sidecar":                              "view",
		"mode=sidecar,admin.local=operate":          "",
		"mode=sidecar,admin.existingSecret=a":       "",
		"mode=sidecar,settings.ADMIN_TOKEN_FILE=/a": "",
		"mode=service":                              "",
		"mode=service,admin.local=view":             "view",
	} {
		got := ""
		for _, e := range container(t, pod(t, render(t, "--set", values))).Env {
			if e.Name == "ADMIN_LOCAL" {
				got = e.Value
			}
		}
		if got != want {
			t.Errorf("with %s ADMIN_LOCAL is %q, want %q", values, got, want)
		}
	}
}
