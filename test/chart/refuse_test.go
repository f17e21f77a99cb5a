package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// redisAnd is values with a Redis.
func redisAnd(values string) string { return "{redis: {addresses: [a:1]}, " + values + "}" }

// control is values with a control that has what it needs, and more.
func control(more string) string {
	return redisAnd("control: {enabled: true, database: {existingSecret: a}, " + more + "}")
}

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
		"unknown value of the control": {"control: {replicas: 3}",
			"at '/control': additional properties 'replicas' not allowed"},
		"unknown variable of the control": {"control: {settings: {CONTROL_ARCHIV: s3://a}}",
			"additional properties 'CONTROL_ARCHIV' not allowed"},
		"bucket": {"control: {archive: /var/lib/archive}", "at '/control/archive': '/var/lib/archive' does not match"},
		"schedule": {"control: {backup: {schedule: daily}}",
			"at '/control/backup/schedule': 'daily' does not match pattern"},
		"values of no control":     {"control: {database: {existingSecret: a}}", "set control.enabled"},
		"control without Redis":    {"control: {enabled: true}", "sidecars and the control meet in Redis"},
		"control without database": {redisAnd("control: {enabled: true}"), "the Secret with the URL of PostgreSQL"},
		"control without a URL": {"{redis: {url: {existingSecret: a, optional: true}}, control: {enabled: true}}",
			"the control cannot start without Redis"},
		"TLS of the control without a Secret": {control("tls: {enabled: true}"),
			"control.tls.enabled needs the Secret"},
		"TLS of the control that does nothing": {control("tls: {existingSecret: a}"), "set control.tls.enabled"},
		"metrics without a token": {control("serviceMonitor: {enabled: true}"),
			"Prometheus needs a token of the role viewer"},
		"login of no bucket":  {control("s3: {existingSecret: a}"), "set control.archive or control.backup.enabled"},
		"backup to nowhere":   {control("backup: {enabled: true}"), "control.backup.to: name the bucket"},
		"backup without tool": {control("backup: {enabled: true, to: 's3://a'}"), "name an image with pg_dump"},
		"backup of a cluster": {"{redis: {type: cluster, addresses: [a:1]}, control: {enabled: true, database: " +
			"{existingSecret: a}, backup: {enabled: true, to: 's3://a', postgresImage: a, redisImage: b}}}",
			"only redis.type single is backed up here"},
		"a variable of the control that the chart sets": {control("settings: {CONTROL_LISTEN: ':1'}"),
			"control.settings.CONTROL_LISTEN: the chart sets this variable"},
		"a record that is set twice": {"{redis: {addresses: [a:1]}, settings: {RECORD: 'true'}, control: " +
			"{enabled: true, database: {existingSecret: a}}}", "settings.RECORD: the chart sets this variable"},
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
		"control": {[]string{"--set", "control.enabled=true,control.database.existingSecret=a,redis.addresses={a:1}"},
			[]string{"http://edge-spillway-control.shop.svc.cluster.local:8090", "deploy/edge-spillway-control 8090",
				"ONLY kubectl port-forward", "PODS OF SIDECARS ARE NOT READY UNTIL RULES ARE PUBLISHED"}, "NO RULES"},
		"control with tokens": {[]string{"--values", filepath.Join(chartDir(t), "ci", "13-control.yaml"), "--values",
			filepath.Join(chartDir(t), "ci", "01-namespace.yaml")},
			[]string{"--control https://127.0.0.1:8090 --ca CA.crt --token-file TOKEN rules publish",
				"Before an upgrade: spillway lint FILE"}, "NOT READY UNTIL"},
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
