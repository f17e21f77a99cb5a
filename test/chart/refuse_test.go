package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// TestBadValuesAreRefused: by the schema or by the templates, with the value's name and what is wrong with it.
func TestBadValuesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ values, says string }{
		"unknown value": {"replicas: 3", "additional properties 'replicas' not allowed"},
		"unknown value below": {"redis: {server: redis:6379}",
			"at '/redis': additional properties 'server' not allowed"},
		"unknown mode": {"mode: daemonset", "at '/mode': value must be one of 'service', 'sidecar'"},
		"type of Redis": {"redis: {type: sentinels}", "at '/redis/type': value must be one of 'single', " +
			"'sentinel', 'cluster', 'ring'"},
		"a number for a text": {"settings: {LOG_DECISIONS_RATE: 1}",
			"at '/settings/LOG_DECISIONS_RATE': got number, want string"},
		"unknown variable": {"settings: {LOG_LEVELS: debug}", "at '/settings': additional properties " +
			"'LOG_LEVELS' not allowed"},
		"a text for a number": {"replicaCount: two", "at '/replicaCount': got string, want integer"},
		"port":                {"service: {port: 70000}", "at '/service/port': maximum: got 70,000, want 65,535"},
		"digest":              {"image: {digest: latest}", "at '/image/digest': 'latest' does not match pattern"},
		"rules as an object": {"rules: {files: {a.yaml: {domain: a}}}",
			"at '/rules/files/a.yaml': got object, want string"},
		"rules without a domain": {"rules: {files: {a.yaml: 'rules: []'}}",
			"at '/rules/files/a.yaml': 'rules: []' does not match pattern"},
		"name of a rule file": {"rules: {files: {a.txt: 'domain: a'}}",
			"at '/rules/files': additional properties 'a.txt' not allowed"},
		"login in an address": {"redis: {addresses: ['user:secret@redis:6379']}", "at '/redis/addresses/0'"},
		"duration":            {"drainDelay: 5 seconds", "at '/drainDelay': '5 seconds' does not match pattern"},
		"label":               {"podLabels: {a: 'b c'}", "at '/podLabels/a': 'b c' does not match pattern"},
		"rules twice": {"rules: {existingConfigMap: a, files: {a.yaml: 'domain: a'}}",
			"set either rules.files or rules.existingConfigMap"},
		"published nowhere": {"rules: {published: true}", "published rules are in Redis"},
		"Redis twice": {"redis: {addresses: [a:1], url: {existingSecret: a}}",
			"set either redis.addresses or redis.url.existingSecret"},
		"single with two addresses": {"redis: {addresses: [a:1, b:1]}",
			"several need redis.type sentinel, cluster or ring"},
		"sentinel without a master": {"redis: {type: sentinel, addresses: [a:1]}", "sentinels need the master's name"},
		"master without sentinel": {"redis: {master: m, addresses: [a:1]}",
			"only redis.type sentinel has a master's name"},
		"password without Redis": {"redis: {auth: {existingSecret: a}}",
			"needs redis.addresses or redis.url.existingSecret"},
		"password of no sentinels": {"redis: {addresses: [a:1], sentinelAuth: {existingSecret: a}}",
			"only redis.type sentinel has sentinels"},
		"TLS that does nothing": {"redis: {addresses: [a:1], tls: {existingSecret: a}}", "set redis.tls.enabled"},
		"half a certificate": {"redis: {addresses: [a:1], tls: {enabled: true, existingSecret: a, certKey: " +
			"tls.crt}}", "set both certKey and keyKey"},
		"certificate from nowhere": {"redis: {addresses: [a:1], tls: {enabled: true, certKey: a, keyKey: b}}",
			"a certificate needs the Secret"},
		"TLS without a Secret": {"tls: {enabled: true}", "tls.enabled needs the Secret with the certificate"},
		"mTLS without TLS":     {"tls: {client: {required: true}}", "certificates of callers need tls.enabled"},
		"names without mTLS": {"tls: {enabled: true, existingSecret: a, client: {names: [a]}}",
			"names are checked only with tls.client.required"},
		"headless node port": {"service: {headless: true, type: NodePort}",
			"a headless Service is of the type ClusterIP"},
		"bounds of scaling": {"{redis: {addresses: [a:1]}, autoscaling: {enabled: true, minReplicas: 5, " +
			"maxReplicas: 2}}",
			"minReplicas is above maxReplicas"},
		"scaling without Redis": {"autoscaling: {enabled: true}",
			"several pods need a Redis, or each admits the whole limit; set redis.addresses"},
		"role of loopback": {"admin: {local: operator}",
			"at '/admin/local': value must be one of '', 'view', 'operate'"},
		"two guards": {"admin: {local: view, existingSecret: a}",
			"with admin.existingSecret the tokens have roles"},
		"nothing to scrape": {"{serviceMonitor: {enabled: true}, metrics: {enabled: false}}",
			"there is nothing to scrape"},
		"scaling a sidecar": {"{mode: sidecar, autoscaling: {enabled: true}}",
			"in sidecar mode your workloads scale"},
		"monitoring a sidecar": {"{mode: sidecar, serviceMonitor: {enabled: true}}",
			"there is no Service in sidecar mode"},
		"a variable of the chart's": {"settings: {GRPC_HOST: 127.0.0.1}",
			"settings.GRPC_HOST: the chart sets this variable"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			must.Do(t, os.WriteFile(file, []byte(c.values+"\n"), 0o600))
			out, err := helm(t, "template", releaseName, chartDir(t), "--values", file)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s is answered with %v, want %q\n%.200s", c.values, err, c.says, out)
			}
		})
	}
}

// TestNotesSayWhatToDo: they warn of what is missing, and have the names of this release.
func TestNotesSayWhatToDo(t *testing.T) {
	chart := withNotes(t)
	for name, c := range map[string]struct {
		args  []string
		says  []string
		lacks string
	}{
		"defaults": {nil, []string{"NO RULES WERE GIVEN", "NO REDIS WAS GIVEN. So there is one pod",
			"redis: {addresses: [", "edge-spillway.shop.svc.cluster.local", "backendRefs"}, "EVERY POD"},
		"given": {
			[]string{"--values", filepath.Join(chartDir(t), "ci", "01-namespace.yaml"), "--set",
				"networkPolicy.enabled=false"},
			[]string{"EVERY POD OF THE CLUSTER CAN ASK"}, "WAS GIVEN",
		},
		"sidecar": {[]string{"--set", "mode=sidecar,sidecar.socket=true"},
			[]string{"inject.istio.io/templates: sidecar,spillway", "rls-socket.yaml",
				"change nothing: set admin.existingSecret"}, "backendRefs"},
		"sidecar of operators": {[]string{"--set", "mode=sidecar,admin.local=operate"},
			[]string{"EVERY CONTAINER OF A POD IS AN OPERATOR"}, "change nothing"},
		"sidecar with tokens": {[]string{"--set", "mode=sidecar,admin.existingSecret=a"},
			[]string{"inject.istio.io"}, "OPERATOR"},
	} {
		notes, err := helm(t, append([]string{"template", releaseName, chart, "--namespace", namespace, "--show-only",
			"templates/notes.yaml"}, c.args...)...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, text := range c.says {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: the notes lack %q:\n%s", name, text, notes)
			}
		}
		if strings.Contains(notes, c.lacks) {
			t.Errorf("%s: the notes say %q:\n%s", name, c.lacks, notes)
		}
	}
}

// withNotes is a copy of the chart that renders its notes as an object: without a cluster helm does not show them.
func withNotes(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	err := os.CopyFS(folder, os.DirFS(chartDir(t)))
	if err == nil {
		err = os.Rename(filepath.Join(folder, "templates", "NOTES.txt"), filepath.Join(folder, "notes.txt"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "templates", "notes.yaml"),
			[]byte("notes: |\n{{ tpl (.Files.Get \"notes.txt\") . | indent 2 }}\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}
