package mesh

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// off turns off what only Istio's own build of Envoy has, and what needs certificates.
var off = []string{"PILOT_ENABLE_METADATA_EXCHANGE=false", "PILOT_ENABLE_ALPN_FILTER=false",
	"PILOT_ENABLE_SENDING_HBONE=false", "POD_NAMESPACE=istio-system", "POD_NAME=istiod-0", "CLUSTER_ID=Kubernetes"}

// startIstiod starts Istio's control plane on a cluster, with the mesh configuration of examples/istio.
func startIstiod(t *testing.T, c *cluster, env ...string) *servers.Process {
	t.Helper()
	var helm struct {
		MeshConfig map[string]any `yaml:"meshConfig"`
	}
	must.Do(t, yaml.Unmarshal([]byte(patient.Replace(example(t, "mesh-values.yaml"))), &helm))
	helm.MeshConfig["enableAutoMtls"] = false
	helm.MeshConfig["enablePrometheusMerge"] = false
	file := filepath.Join(c.dir, "mesh")
	write(t, file, string(must.Get(yaml.Marshal(helm.MeshConfig))(t)))
	c.mustApply(t, parse(t, system)...)
	cmd := exec.Command(program(t, "istiod", "istiod"), "discovery", "--kubeconfig", c.dir+"/kubeconfig",
		"--meshConfig", file, "--grpcAddr", "127.0.0.1:15010", "--secureGRPCAddr", "", "--httpsAddr", "",
		"--httpAddr", "127.0.0.1:15080", "--monitoringAddr", "127.0.0.1:15014", "--namespace", "istio-system")
	cmd.Env, cmd.Dir = slices.Concat(os.Environ(), off, env), c.dir
	istiod := servers.Start(t, cmd)
	servers.Await(t, "istiod", func() error {
		answer, err := http.Get("http://127.0.0.1:15080/ready")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", answer.Status)
		}
		return nil
	})
	return istiod
}

// system is what Istio's chart makes beside istiod. No certificates: nothing here runs the agent that has them signed.
const system = `apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: DISABLE}}
`
