// Package gateway tests Spillway in place of the rate limit service of Envoy Gateway: a real Envoy Gateway from files,
// the Envoy that it starts, and the sidecar as /bin/ratelimit with the environment, the user and the read-only root of
// the Deployment. It needs root: everything runs in namespaces of its own, in which Envoy Gateway and the sidecar have
// two networks, because both listen on port 8081.
package gateway

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	inside      = "GATEWAY_TEST_INSIDE" // set where the namespaces are
	gatewayIP   = "10.77.0.1"
	sidecarIP   = "10.77.0.2"
	serviceName = "envoy-ratelimit.envoy-gateway-system.svc.cluster.local"
	front       = "http://127.0.0.1:8888/"
)

func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		os.Exit(servers.Main(m))
	}
	args := append([]string{"--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", os.Args[0]},
		os.Args[1:]...)
	cmd := exec.Command("unshare", args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), inside+"=1"), os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "in namespaces of its own (this needs root):", err)
		os.Exit(1)
	}
}

// world is all parts of the chain.
type world struct {
	dir      string // of this test
	certs    string // of the rate limit service
	config   string // of Envoy Gateway
	policies string // folder that Envoy Gateway watches
	network  int    // process that holds the sidecar's network
	redis    *servers.Redis
	gateway  *servers.Process
	sidecar  *servers.Process
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return string(text)
}

// newWorld prepares networks, names and certificates, and starts Redis.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "gw"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must.Do(t, os.Chmod(dir, 0o755))
	w := &world{dir: dir, policies: filepath.Join(dir, "resources"), config: filepath.Join(dir, "config")}
	w.connect(t)
	w.certificates(t)
	write(t, filepath.Join(dir, "hosts"), "127.0.0.1 localhost upstream.example\n"+sidecarIP+" "+serviceName+"\n")
	run(t, "mount", "--bind", filepath.Join(dir, "hosts"), "/etc/hosts")
	t.Cleanup(func() { run(t, "umount", "-l", "/etc/hosts") })
	w.redis = servers.StartRedis(t, "--bind", "0.0.0.0", "--protected-mode", "no")
	return w
}

// connect gives the sidecar a network of its own, with a wire to this one.
func (w *world) connect(t *testing.T) {
	t.Helper()
	w.network = servers.Child(t, "unshare", "--net", "sleep", "infinity").Process.Pid
	servers.Await(t, "the sidecar's network", func() error {
		mine, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			return err
		}
		other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", w.network))
		if err == nil && mine == other {
			err = errors.New("the process is still in this network")
		}
		return err
	})
	pid := fmt.Sprint(w.network)
	for _, line := range []string{
		"ip link set lo up",
		"ip link add gw0 type veth peer name gw1 netns " + pid,
		"ip addr add " + gatewayIP + "/24 dev gw0",
		"ip link set gw0 up",
		"nsenter -t " + pid + " -n ip addr add " + sidecarIP + "/24 dev gw1",
		"nsenter -t " + pid + " -n ip link set gw1 up",
		"nsenter -t " + pid + " -n ip link set lo up",
	} {
		part := strings.Fields(line)
		run(t, part[0], part[1:]...)
	}
}

// gatewayBin is the program: ENVOY_GATEWAY_BIN, else what `make test-gateway` builds.
func gatewayBin(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("ENVOY_GATEWAY_BIN")
	if bin == "" {
		bin = filepath.Join(servers.Root(t), ".tools", "envoy-gateway", "envoy-gateway")
	}
	_, err := os.Stat(bin)
	if err != nil {
		t.Fatalf("Envoy Gateway is missing: run make test-gateway, or name the program in ENVOY_GATEWAY_BIN: %v", err)
	}
	return bin
}

// certificates lets Envoy Gateway make those of all parts. Envoy reads the authority's at /certs/ca.crt, as it does in
// its own pod.
func (w *world) certificates(t *testing.T) {
	t.Helper()
	run(t, gatewayBin(t), "certgen", "--local", "--config-home", w.config)
	w.certs = filepath.Join(w.config, "certs", "envoy-rate-limit")
	err := os.Mkdir("/certs", 0o755)
	if err == nil {
		t.Cleanup(func() { os.Remove("/certs") })
	}
	run(t, "mount", "--bind", w.certs, "/certs")
	t.Cleanup(func() { run(t, "umount", "-l", "/certs") })
}

// startGateway starts Envoy Gateway with the resources of the folder.
func (w *world) startGateway(t *testing.T) {
	t.Helper()
	file := filepath.Join(w.dir, "envoy-gateway.yaml")
	data := filepath.Join(w.dir, "data")
	write(t, file, strings.NewReplacer("CONFIG", w.config, "DATA", data, "DIR", w.dir, "RESOURCES", w.policies, "REDIS",
		w.redisAt(t, "redis.example")).Replace(gatewayConfig))
	bin := filepath.Join(data, "envoy-versions", "1.40.0", "bin")
	err := os.MkdirAll(bin, 0o755)
	if err == nil {
		err = os.Symlink(servers.EnvoyBin(t), filepath.Join(bin, "envoy"))
	}
	if err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	cmd := exec.Command(gatewayBin(t), "server", "--config-path", file)
	cmd.Env = append(os.Environ(), "ENVOY_GATEWAY_NAMESPACE=envoy-gateway-system")
	w.gateway = servers.Start(t, cmd)
}

const gatewayConfig = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Custom
  custom:
    resource: {type: File, file: {paths: ["RESOURCES"]}}
    infrastructure: {type: Host, host: {configHome: "CONFIG", dataHome: "DATA", stateHome: "DIR/state",
        runtimeDir: "DIR/run"}}
extensionApis: {enableBackend: true, enableLua: true}
rateLimit: {backend: {type: Redis, redis: {url: "REDIS"}}}
logging: {level: {default: info}}
`

// redisAt is host and port of Redis. Envoy Gateway takes names alone, and does not connect to it.
func (w *world) redisAt(t *testing.T, host string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(w.redis.Addr)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(host, port)
}

// startSidecar starts the sidecar as the Deployment does: /bin/ratelimit, its environment, user 65534, a root that
// cannot be written to.
func (w *world) startSidecar(t *testing.T) {
	t.Helper()
	root := filepath.Join(w.dir, "root")
	if _, err := os.Stat(root); err != nil {
		w.buildRoot(t, root)
	}
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(w.network), "-n", "chroot", "--userspec=65534:65534", root,
		"/bin/ratelimit")
	cmd.Env = strings.Fields(strings.ReplaceAll(deployment, "HOST:PORT", w.redisAt(t, gatewayIP)))
	w.sidecar = servers.Start(t, cmd)
}

// deployment is the environment that Envoy Gateway gives the container.
const deployment = `PATH=/usr/bin:/usr/sbin:/bin:/sbin LOG_LEVEL=info USE_STATSD=false
RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_IGNOREDOTFILES=true RUNTIME_WATCH_ROOT=false
CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001 CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit
GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/certs/tls.crt GRPC_SERVER_TLS_KEY=/certs/tls.key
GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt CONFIG_GRPC_XDS_SERVER_USE_TLS=true
CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key
CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt FORCE_START_WITHOUT_INITIAL_CONFIG=true
REDIS_SOCKET_TYPE=tcp REDIS_URL=HOST:PORT
USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001 PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml`

// buildRoot makes the file system of the container.
func (w *world) buildRoot(t *testing.T, root string) {
	t.Helper()
	write(t, filepath.Join(root, "etc", "hosts"), "127.0.0.1 localhost\n"+gatewayIP+" envoy-gateway\n")
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		write(t, filepath.Join(root, "certs", name), read(t, filepath.Join(w.certs, name)))
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(root, "bin", "ratelimit"),
		"./cmd/sidecar")
	build.Dir, build.Env = servers.Root(t), append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("build the sidecar: %v\n%s", err, out)
	}
	run(t, "mount", "--bind", root, root)
	run(t, "mount", "-o", "remount,bind,ro", root)
	t.Cleanup(func() { run(t, "umount", "-l", root) })
}

// apply writes a file of resources; nothing removes it.
func (w *world) apply(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(w.policies, name+".yaml")
	if text != "" {
		write(t, file, text)
		return
	}
	must.Do(t, os.Remove(file))
}

// secret is the certificate of Envoy, so that it has the authority that the sidecar trusts.
func (w *world) secret(t *testing.T) string {
	t.Helper()
	data := ""
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		data += "  " + name + ": " +
			base64.StdEncoding.EncodeToString([]byte(read(t, filepath.Join(w.config, "certs", "envoy", name)))) + "\n"
	}
	return "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\n" +
		"metadata: {name: envoy, namespace: envoy-gateway-system}\ndata:\n" + data
}

// get is the status of a request by a user, or 0.
func get(path, user string) int {
	request, err := http.NewRequest(http.MethodGet, front+path, nil)
	if err != nil {
		return 0
	}
	request.Header.Set("x-user", user)
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

var users int

// admitted is how many of 12 requests of a new user pass; -1 where Envoy does not serve.
func admitted(path string) int {
	users++
	passed := 0
	for range 12 {
		switch get(path, fmt.Sprint("user-", users)) {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
		default:
			return -1
		}
	}
	return passed
}

// await waits until so many requests of a new user pass on a path.
func (w *world) await(t *testing.T, path string, want int) {
	t.Helper()
	servers.Await(t, fmt.Sprintf("%d requests of a user on /%s", want, path), func() error {
		if got := admitted(path); got != want {
			return fmt.Errorf("%d requests pass", got)
		}
		return nil
	})
}

// page reads a page of the sidecar from the network of Envoy Gateway, as a probe of the kubelet does.
func page(port, path string) (string, error) {
	r, err := http.Get("http://" + sidecarIP + ":" + port + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, text)
	}
	return string(text), err
}

// awaitPage waits for a text on a page of the sidecar.
func awaitPage(t *testing.T, port, path, text string) {
	t.Helper()
	servers.Await(t, text, func() error {
		got, err := page(port, path)
		if err == nil && !strings.Contains(got, text) {
			err = fmt.Errorf("%s holds %.300s", path, got)
		}
		return err
	})
}
