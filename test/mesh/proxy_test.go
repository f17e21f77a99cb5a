package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// proxyUser is the user of Istio's container, whose connections the packet filter leaves alone.
const proxyUser = "1337"

// bootstrap is what Istio's agent gives to Envoy, but for certificates.
const bootstrap = `node:
  id: (kind)~(address)~(name).(namespace)~(namespace).svc.cluster.local
  cluster: (name).(namespace)
  metadata: {NAMESPACE: (namespace), WORKLOAD_NAME: (name), CLUSTER_ID: Kubernetes, ISTIO_VERSION: 1.31.0,
    INSTANCE_IPS: (address), INTERCEPTION_MODE: REDIRECT, SERVICE_ACCOUNT: default, LABELS: (labels)}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 15000}}}
dynamic_resources:
  lds_config: {ads: {}, resource_api_version: V3}
  cds_config: {ads: {}, resource_api_version: V3}
  ads_config: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: istiod}}]}
static_resources:
  clusters:
  - name: istiod
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: istiod
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 15010}}}}]}]
`

// proxy is an Envoy that istiod configures.
type proxy struct {
	process *servers.Process
}

// bootstrapOf is that of the Envoy of a pod. The kind is sidecar, router or waypoint.
func bootstrapOf(t *testing.T, kind string, pod object) string {
	t.Helper()
	labels := must.Get(json.Marshal(pod.at("metadata", "labels")))(t)
	return strings.NewReplacer("(kind)", kind, "(labels)", string(labels), "(address)", podIP,
		"(namespace)", pod.text("metadata", "namespace"), "(name)", pod.text("metadata", "name")).Replace(bootstrap)
}

// startProxy starts an Envoy with a bootstrap, as the user of Istio's container.
func startProxy(t *testing.T, bootstrap string) *proxy {
	t.Helper()
	file := filepath.Join(folder(t), "envoy.yaml")
	write(t, file, bootstrap)
	p := &proxy{servers.Start(t, exec.Command("setpriv", "--reuid="+proxyUser, "--regid="+proxyUser, "--clear-groups",
		servers.EnvoyBin(t), "-c", file, "--disable-hot-restart", "--concurrency", "1", "-l", "warning"))}
	servers.Await(t, "all that istiod sends to Envoy", func() error {
		_, err := p.page("/ready")
		return err
	})
	return p
}

// page is a page of Envoy's administration.
func (p *proxy) page(path string) (string, error) {
	answer, err := http.Get("http://127.0.0.1:15000" + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

// await waits until Envoy uses a configuration that holds a text, and refuses none of it.
func (p *proxy) await(t *testing.T, text string) {
	t.Helper()
	servers.Await(t, text+" in Envoy's configuration", func() error {
		got, err := p.page("/config_dump")
		if err == nil && strings.Contains(got, "error_state") {
			t.Fatalf("Envoy refuses what istiod sends: %.4000s", got[strings.Index(got, "error_state"):])
		}
		if err == nil && !strings.Contains(got, text) {
			err = errors.New("it is not there")
		}
		return err
	})
}

// intercept sends what connects to a port of the workload to Envoy, as Istio's packet filter does in a pod.
func intercept(t *testing.T) {
	t.Helper()
	args := []string{"-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-d", podIP, "--dport", "8080", "-m", "owner", "!",
		"--uid-owner", proxyUser, "-j", "REDIRECT", "--to-ports", "15006"}
	run(t, "iptables", args...)
	t.Cleanup(func() {
		args[2] = "-D"
		run(t, "iptables", args...)
	})
}

// startApp starts the application of the workload: it answers 200 with what it was sent.
func startApp(t *testing.T, handler http.Handler) {
	t.Helper()
	socket := must.Get(net.Listen("tcp", podIP+":8080"))(t)
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(socket) // it ends with Close
	}()
	t.Cleanup(func() { server.Close(); <-done })
}

// startSpillway starts the sidecar of a manifest: the environment of its container, the rules of the ConfigMaps,
// and its user.
func startSpillway(t *testing.T, c *cluster, deployment object, rules ...object) *servers.Process {
	t.Helper()
	now := c.get(t, deployment)
	container := spillway(t, now)
	dir := folder(t)
	for _, one := range rules {
		data, _ := one.at("data").(map[string]any)
		for name, text := range data {
			write(t, filepath.Join(dir, name), text.(string))
		}
	}
	bin := filepath.Join(folder(t), "sidecar")
	run(t, "cp", servers.SidecarBin(t), bin)
	run(t, "chmod", "755", bin)
	cmd := exec.Command("setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", bin)
	list, _ := container.at("env").([]any)
	for _, one := range list {
		env := object(one.(map[string]any))
		if value := env.text("value"); value != "" {
			cmd.Env = append(cmd.Env, env.text("name")+"="+value)
		}
	}
	cmd.Env = append(cmd.Env, "RULES="+dir)
	p := servers.Start(t, cmd)
	servers.Await(t, "the sidecar", func() error {
		if !strings.Contains(p.Output(), "msg=listening") {
			return errors.New("it does not say that it listens")
		}
		return nil
	})
	return p
}

// spillway is the container of that name in a Deployment.
func spillway(t *testing.T, deployment object) object {
	t.Helper()
	for _, list := range []string{"initContainers", "containers"} {
		all, _ := deployment.at("spec", "template", "spec", list).([]any)
		for _, one := range all {
			if container := object(one.(map[string]any)); container.text("name") == "spillway" {
				return container
			}
		}
	}
	t.Fatalf("%s has no container of Spillway", deployment)
	return nil
}

// request is one of a client.
type request struct {
	to     string // the workload where it is empty
	from   string // the address of the client
	method string
	path   string
	header []string // names and values
	body   string
}

// send makes the request, on a connection of its own.
func (r request) send() (status int, header http.Header, err error) {
	if r.to == "" {
		r.to = podIP + ":8080"
	}
	if r.method == "" {
		r.method = http.MethodGet
	}
	dialer := &net.Dialer{}
	if r.from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(r.from)}
	}
	one, err := http.NewRequest(r.method, "http://"+r.to+r.path, strings.NewReader(r.body))
	if err != nil {
		return 0, nil, err
	}
	for i := 0; i+1 < len(r.header); i += 2 {
		one.Header[r.header[i]] = []string{r.header[i+1]} // unchanged
	}
	direct := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	defer direct.CloseIdleConnections()
	answer, err := direct.Do(one)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.Header, err
}

// wants makes so many requests, each with that status, and returns the headers of the last answer.
func wants(t *testing.T, count, status int, r request) (header http.Header) {
	t.Helper()
	for i := range count {
		got, last, err := r.send()
		if err != nil || got != status {
			t.Fatalf("request %d of %s is answered %d (%v), and not %d", i+1, r.path, got, err, status)
		}
		header = last
	}
	return header
}
