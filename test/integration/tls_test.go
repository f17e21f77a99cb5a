package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// pki makes certificates in a folder. Its first is its authority, ca.crt.
type pki struct {
	dir    string
	parent *x509.Certificate
	signer *ecdsa.PrivateKey
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{dir: t.TempDir()}
	p.issue(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return p
}

// leaf makes name.crt and name.key, made out to that name.
func (p *pki) leaf(t *testing.T, name string) {
	t.Helper()
	p.issue(t, name, &x509.Certificate{DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
}

func (p *pki) issue(t *testing.T, name string, template *x509.Certificate) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	if p.parent == nil {
		p.parent, p.signer = template, key
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, p.parent, &key.PublicKey, p.signer))(t)
	private := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	p.write(t, name+".crt", "CERTIFICATE", der)
	p.write(t, name+".key", "PRIVATE KEY", private)
}

func (p *pki) write(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(p.file(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

// tlsConfig is examples/envoy/tls.yaml between these two sidecars and the application, where Envoy has the certificate
// of that name.
func tlsConfig(t *testing.T, p *pki, own, app string, sidecars [2]*servers.Sidecar) string {
	t.Helper()
	return rewritten(t, filepath.Join(servers.Root(t), "examples", "envoy", "tls.yaml"), [][2]string{
		{"{socket_address: {address: 127.0.0.1, port_value: 9901}}", socketAddress("127.0.0.1:0")},
		{"{socket_address: {address: 0.0.0.0, port_value: 10000}}", socketAddress("127.0.0.1:0")},
		{"{socket_address: {address: 127.0.0.1, port_value: 8000}}", socketAddress(app)},
		{"{socket_address: {address: spillway-1.example, port_value: 8081}}", socketAddress(sidecars[0].GRPC)},
		{"{socket_address: {address: spillway-2.example, port_value: 8081}}", socketAddress(sidecars[1].GRPC)},
		{"timeout: 0.1s", "timeout: " + filterTimeout},
		{"connect_timeout: 0.25s", "connect_timeout: " + filterTimeout},
		{"/etc/envoy/tls/tls.crt", p.file(own + ".crt")},
		{"/etc/envoy/tls/tls.key", p.file(own + ".key")},
		{"/etc/envoy/tls/ca.crt", p.file("ca.crt")},
	})
}

func TestEnvoyAsksOverTLS(t *testing.T) {
	p := newPKI(t)
	for _, name := range []string{"spillway", "envoy", "stranger"} {
		p.leaf(t, name)
	}
	redis, app := servers.StartRedis(t), servers.StartUpstream(t)
	var sidecars [2]*servers.Sidecar
	for i := range sidecars {
		sidecars[i] = servers.StartSidecar(t, "RULES="+filepath.Join(servers.Root(t), "examples", "rules"),
			"REDIS_URL="+redis.Addr, storeSilence, storePatience,
			"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+p.file("spillway.crt"), "GRPC_SERVER_TLS_KEY="+
				p.file("spillway.key"),
			"GRPC_CLIENT_TLS_CACERT="+p.file("ca.crt"), "GRPC_CLIENT_TLS_SAN=envoy")
	}
	known := &world{app: app, client: http.DefaultClient,
		envoy: servers.StartEnvoy(t, tlsConfig(t, p, "envoy", app.Addr, sidecars))}
	servers.Await(t, "two sidecars that are healthy over TLS", func() error {
		if n := known.envoy.Stat(t, "cluster.spillway.membership_healthy"); n != 2 {
			return fmt.Errorf("%d of them are", n)
		}
		return nil
	})
	inside(t, time.Minute)
	known.wants(t, 10, http.StatusOK, "/", "x-user", "tls").remaining(t, "0")
	known.wants(t, 1, http.StatusTooManyRequests, "/", "x-user", "tls")
	if n := known.envoy.Stat(t, "cluster.app.ratelimit.error"); n != 0 {
		t.Errorf("%d calls over TLS failed", n)
	}

	// An Envoy with another name gets no answer, so that its requests pass, and its counter shows that.
	other := &world{app: app, client: http.DefaultClient,
		envoy: servers.StartEnvoy(t, tlsConfig(t, p, "stranger", app.Addr, sidecars))}
	other.wants(t, 1, http.StatusOK, "/", "x-user", "tls")
	if n := other.envoy.Stat(t, "cluster.app.ratelimit.failure_mode_allowed"); n != 1 {
		t.Errorf("a stranger's request was asked about: failure_mode_allowed is %d", n)
	}
}
