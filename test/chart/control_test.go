package chart

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"

	"github.com/spillway-mesh/spillway/sidecar/settings"
)

const controlName = "spillway-control"

// controlPods are the pods of the control plane by their object: of the Deployment and the Job, and of the CronJob
// where there is one. A rendering without a control has none.
func controlPods(t *testing.T, r rendering) map[string]core.PodTemplateSpec {
	t.Helper()
	all := map[string]core.PodTemplateSpec{}
	if d := only[*apps.Deployment](t, r, controlName); d != nil {
		all["control"] = d.Spec.Template
		all["migrate"] = only[*batch.Job](t, r, controlName).Spec.Template
	}
	if c := only[*batch.CronJob](t, r, controlName); c != nil {
		all["backup"] = c.Spec.JobTemplate.Spec.Template
	}
	return all
}

// eachControlPod runs a test for the pods of every rendering with a control.
func eachControlPod(t *testing.T, run func(t *testing.T, r rendering, name string, p core.PodTemplateSpec)) {
	t.Helper()
	ran := 0
	eachRendering(t, func(t *testing.T, r rendering) {
		for name, p := range controlPods(t, r) {
			ran++
			run(t, r, name, p)
		}
	})
	if ran < 5 { // of one with a CronJob, and of one without
		t.Errorf("%d pods are of a control, want five at least", ran)
	}
}

func containersOf(p core.PodSpec) []core.Container {
	return append(slices.Clone(p.InitContainers), p.Containers...)
}

func TestControlPodsAreConfined(t *testing.T) {
	eachControlPod(t, func(t *testing.T, _ rendering, name string, p core.PodTemplateSpec) {
		if p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken {
			t.Errorf("%s has a token for the API of Kubernetes, which it does not need", name)
		}
		for _, c := range containersOf(p.Spec) {
			s := c.SecurityContext
			if !*s.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
				!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
				t.Errorf("%s: %s may more than it needs: %v", name, c.Name, s)
			}
			if c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: %s has no limit of memory", name, c.Name)
			}
		}
	})
}

// TestControlVolumesAreMounted: every mount is of a volume, every volume is mounted, and each file that the environment
// names is in a folder that is mounted.
func TestControlVolumesAreMounted(t *testing.T) {
	eachControlPod(t, func(t *testing.T, _ rendering, name string, p core.PodTemplateSpec) {
		var volumes, mounted []string
		for _, v := range p.Spec.Volumes {
			volumes = append(volumes, v.Name)
		}
		for _, c := range containersOf(p.Spec) {
			var folders []string
			for _, m := range c.VolumeMounts {
				mounted, folders = append(mounted, m.Name), append(folders, m.MountPath)
			}
			for _, e := range c.Env {
				if strings.HasPrefix(e.Value, root+"/") && !slices.Contains(folders, filepath.Dir(e.Value)) {
					t.Errorf("%s: %s is %s, where nothing is mounted", name, e.Name, e.Value)
				}
			}
		}
		slices.Sort(volumes)
		slices.Sort(mounted)
		if !slices.Equal(volumes, slices.Compact(mounted)) {
			t.Errorf("%s has the volumes %v, and mounts %v", name, volumes, mounted)
		}
	})
}

// TestControlEnvironmentIsUnderstood: each variable is one that the control reads, once, and they are taken together.
func TestControlEnvironmentIsUnderstood(t *testing.T) {
	known := append(settings.Variables(), settings.ControlVariables()...)
	eachControlPod(t, func(t *testing.T, r rendering, name string, p core.PodTemplateSpec) {
		if name == "backup" {
			return
		}
		c := p.Spec.Containers[0]
		var names []string
		for _, e := range c.Env {
			if !slices.Contains(known, e.Name) || slices.Contains(names, e.Name) {
				t.Errorf("the control does not read %s, or it is there twice", e.Name)
			}
			names = append(names, e.Name)
		}
		_, _, err := settings.ControlFromEnvironment(mount(t, r, c).environment(c))
		if err != nil {
			t.Errorf("%s would not start: %v", name, err)
		}
	})
}

// TestControlSharesWithSidecars: what decides how keys in Redis are named is the same for both, wherever it is set.
func TestControlSharesWithSidecars(t *testing.T) {
	r := render(t, "--set", "control.enabled=true,control.database.existingSecret=a,redis.addresses={redis:1}",
		"--set-string", "settings.CACHE_KEY_PREFIX=edge,settings.RECORD_PLAIN_IDENTITIES=true,"+
			"settings.LOG_LEVEL=debug,extraEnv[0].name=KEY_SECRET,extraEnv[0].value=secret,extraEnv[1].name=GOGC,"+
			"extraEnv[1].value=off")
	of := func(c core.Container) map[string]string {
		all := map[string]string{}
		for _, e := range c.Env {
			all[e.Name] = e.Value
		}
		return all
	}
	sidecar, control := of(container(t, pod(t, r))), of(controlPods(t, r)["control"].Spec.Containers[0])
	for _, name := range []string{"CACHE_KEY_PREFIX", "KEY_SECRET", "REDIS_URL", "RECORD", "RECORD_PLAIN_IDENTITIES"} {
		if sidecar[name] == "" || control[name] != sidecar[name] {
			t.Errorf("%s is %q for the control, and %q for sidecars", name, control[name], sidecar[name])
		}
	}
	if sidecar["RULES"] != "redis:" || control["LOG_LEVEL"]+control["GOGC"]+control["RULES"] != "" {
		t.Errorf("sidecars have %v, the control has %v", sidecar, control)
	}
}

// TestControlObjectsPointAtEachOther: what selects pods selects those of the control, and nothing of the sidecars does;
// pods of jobs are selected by nothing.
func TestControlObjectsPointAtEachOther(t *testing.T) {
	eachRendering(t, func(t *testing.T, r rendering) {
		pods := controlPods(t, r)
		if len(pods) == 0 {
			return
		}
		d, service := only[*apps.Deployment](t, r, controlName), only[*core.Service](t, r, controlName)
		selectors := map[string]map[string]string{
			"the Deployment": d.Spec.Selector.MatchLabels, "the Service": service.Spec.Selector,
		}
		if b := only[*policy.PodDisruptionBudget](t, r, controlName); b != nil {
			selectors["the PodDisruptionBudget"] = b.Spec.Selector.MatchLabels
		}
		if p := only[*network.NetworkPolicy](t, r, controlName); p != nil {
			selectors["the NetworkPolicy"] = p.Spec.PodSelector.MatchLabels
			guardsControl(t, p)
		}
		for what, selector := range selectors {
			for name, pod := range pods {
				if selects(selector, pod.Labels) != (name == "control") {
					t.Errorf("%s selects %v, and pods of %s have %v", what, selector, name, pod.Labels)
				}
			}
		}
		if sidecars := one[*core.Service](t, r); sidecars != nil {
			for name, pod := range pods {
				if selects(sidecars.Spec.Selector, pod.Labels) {
					t.Errorf("the Service of the sidecars selects pods of %s", name)
				}
			}
		}
		if m := only[*monitoring.ServiceMonitor](t, r, controlName); m != nil &&
			(!selects(m.Spec.Selector.MatchLabels, service.Labels) || service.Labels[m.Spec.JobLabel] != controlName ||
				m.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name) {
			t.Errorf("the ServiceMonitor %v does not find the Service %v", m.Spec, service.Labels)
		}
		port := d.Spec.Template.Spec.Containers[0].Ports[0]
		if service.Spec.Ports[0].TargetPort.StrVal != port.Name || port.ContainerPort != 8090 {
			t.Errorf("the Service leads to %v, the control listens on %v", service.Spec.Ports[0].TargetPort, port)
		}
	})
}

// selects reports whether a selector chooses what has these labels.
func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// guardsControl checks a policy: chosen callers reach the API. Where it is about connections of the control, too,
// servers have names.
func guardsControl(t *testing.T, p *network.NetworkPolicy) {
	t.Helper()
	for _, rule := range p.Spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Errorf("the rule %v lets every caller connect, or to every port", rule)
		}
	}
	closed := slices.Contains(p.Spec.PolicyTypes, network.PolicyTypeEgress)
	if closed != (len(p.Spec.Egress) > 0) || closed && p.Spec.Egress[0].Ports[0].Port.IntValue() != 53 {
		t.Errorf("the policy is for %v, and lets %v out", p.Spec.PolicyTypes, p.Spec.Egress)
	}
}

// TestMigrationComesFirst: it is a hook, so it ends before the release is installed or changed. So it may not need what
// the release has.
func TestMigrationComesFirst(t *testing.T) {
	r := render(t, "--values", filepath.Join(chartDir(t), "ci", "13-control.yaml"))
	job := only[*batch.Job](t, r, controlName)
	if job.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" {
		t.Errorf("the Job has the annotations %v", job.Annotations)
	}
	if got := job.Spec.Template.Spec.ServiceAccountName; got != "" {
		t.Errorf("the Job needs the service account %s, which is made after it", got)
	}
	for _, v := range job.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil {
			t.Errorf("the Job needs the ConfigMap %s, which is made after it", v.ConfigMap.Name)
		}
	}
}
