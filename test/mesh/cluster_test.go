package mesh

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	apiServer = "https://127.0.0.1:6443"
	token     = "test"
)

// cluster is etcd and the API server of Kubernetes, without controllers and nodes.
type cluster struct {
	dir   string
	kinds map[string]resource // by apiVersion and kind
}

// resource is what the API server calls a kind in addresses.
type resource struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
}

// object is a manifest.
type object map[string]any

func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

// at is what stands below keys, or nil.
func (o object) at(path ...string) any {
	var at any = map[string]any(o)
	for _, key := range path {
		next, _ := at.(map[string]any)
		at = next[key]
	}
	return at
}

func (o object) String() string {
	return o.text("kind") + " " + o.text("metadata", "namespace") + "/" + o.text("metadata", "name")
}

// parse reads the manifests of a text.
func parse(t *testing.T, text string) []object {
	t.Helper()
	var all []object
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o map[string]any
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
}

// startCluster starts etcd and the API server with all kinds that the manifests are of.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	network(t)
	c := &cluster{dir: folder(t), kinds: map[string]resource{}}
	servers.Child(t, "etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380")
	c.keys(t)
	servers.Child(t, program(t, "kube-apiserver", "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=127.0.0.1", "--advertise-address="+podIP, "--cert-dir="+filepath.Join(c.dir, "certs"),
		"--service-account-issuer=https://cluster.test", "--service-account-key-file="+c.dir+"/key",
		"--service-account-signing-key-file="+c.dir+"/key", "--token-auth-file="+c.dir+"/tokens",
		"--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount") // whose accounts are the work of a controller
	servers.Await(t, "the API server", func() error {
		_, err := c.call(http.MethodGet, "/readyz", "", nil)
		return err
	})
	c.install(t)
	return c
}

// keys writes the key of service accounts, the token of an administrator and a kubeconfig with it.
func (c *cluster) keys(t *testing.T) {
	t.Helper()
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	write(t, filepath.Join(c.dir, "key"), string(pem.EncodeToMemory(block)))
	write(t, filepath.Join(c.dir, "tokens"), token+",admin,admin,system:masters\n")
	write(t, filepath.Join(c.dir, "kubeconfig"), `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "`+apiServer+`", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: `+token+`}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`)
}

// install adds the kinds of Istio, Envoy Gateway and the others, and waits until they are served.
func (c *cluster) install(t *testing.T) {
	t.Helper()
	files := must.Get(filepath.Glob(filepath.Join(program(t, "crds"), "*.yaml")))(t)
	var added []object
	for _, file := range files {
		for _, o := range parse(t, read(t, file)) {
			if o.text("kind") == "CustomResourceDefinition" {
				c.mustApply(t, o)
				added = append(added, o)
			}
		}
	}
	if len(added) < 20 {
		t.Fatalf("only %d definitions in %v", len(added), files)
	}
	for _, o := range added {
		servers.Await(t, o.String(), func() error {
			now := c.get(t, o)
			if !strings.Contains(fmt.Sprint(now.at("status", "conditions")), "type:Established") {
				return fmt.Errorf("its status is %v", now.at("status", "conditions"))
			}
			return nil
		})
	}
}

var client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// call is one request to the API server. An answer other than a success is an error with its text.
func (c *cluster) call(method, path, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, apiServer+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", contentType)
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		var status struct{ Message string }
		_ = json.Unmarshal(text, &status) // else the message is empty
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, status.Message)
	}
	return text, err
}

// path is where an object is.
func (c *cluster) path(o object) (string, error) {
	version := o.text("apiVersion")
	base := "/apis/" + version
	if !strings.Contains(version, "/") {
		base = "/api/" + version
	}
	r, known := c.kinds[version+" "+o.text("kind")]
	if !known {
		text, err := c.call(http.MethodGet, base, "", nil)
		if err != nil {
			return "", err
		}
		var list struct{ Resources []resource }
		err = json.Unmarshal(text, &list)
		if err != nil {
			return "", err
		}
		for _, one := range list.Resources {
			if !strings.Contains(one.Name, "/") { // else it is a part, as pods/status
				c.kinds[version+" "+one.Kind] = one
			}
		}
		r, known = c.kinds[version+" "+o.text("kind")]
		if !known {
			return "", fmt.Errorf("the API server does not know %s of %s", o.text("kind"), version)
		}
	}
	if r.Namespaced {
		base += "/namespaces/" + o.text("metadata", "namespace")
	}
	return base + "/" + r.Name + "/" + o.text("metadata", "name"), nil
}

// apply is `kubectl apply --server-side`: unknown fields are errors.
func (c *cluster) apply(o object) error { return c.applyAs(o, "", "kubectl") }

// applyAs applies a part of an object, such as its /status, in the name of a manager.
func (c *cluster) applyAs(o object, part, manager string) error {
	path, err := c.path(o)
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = c.call(http.MethodPatch, path+part+"?fieldValidation=Strict&fieldManager="+manager,
		"application/apply-patch+yaml", text)
	return err
}

// mustApply applies objects, and the namespaces that they are in.
func (c *cluster) mustApply(t *testing.T, all ...object) {
	t.Helper()
	c.mustApplyAs(t, "kubectl", all...)
}

func (c *cluster) mustApplyAs(t *testing.T, manager string, all ...object) {
	t.Helper()
	for _, o := range all {
		if namespace := o.text("metadata", "namespace"); namespace != "" {
			// Under another manager, so that labels stay that an example gives its namespace.
			must.Do(t, c.applyAs(object{"apiVersion": "v1", "kind": "Namespace",
				"metadata": map[string]any{"name": namespace}}, "", "reader"))
		}
		err := c.applyAs(o, "", manager)
		if err != nil {
			t.Fatalf("%s: %v", o, err)
		}
	}
}

// get reads an object.
func (c *cluster) get(t *testing.T, o object) object {
	t.Helper()
	path := must.Get(c.path(o))(t)
	text := must.Get(c.call(http.MethodGet, path, "", nil))(t)
	var now object
	must.Do(t, json.Unmarshal(text, &now))
	return now
}

// remove deletes objects. Without a policy a Job would stay until a controller has left its pods behind.
func (c *cluster) remove(t *testing.T, all ...object) {
	t.Helper()
	for _, o := range all {
		path := must.Get(c.path(o))(t)
		_, err := c.call(http.MethodDelete, path+"?gracePeriodSeconds=0&propagationPolicy=Background", "", nil)
		if err != nil {
			t.Fatalf("delete %s: %v", o, err)
		}
	}
}

// examples are the manifests of a folder of examples, by file.
func examples(t *testing.T, name string) map[string][]object {
	t.Helper()
	files := must.Get(filepath.Glob(filepath.Join(servers.Root(t), "examples", name, "*.yaml")))(t)
	all := map[string][]object{}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		all[filepath.Base(file)] = parse(t, string(text))
	}
	return all
}
