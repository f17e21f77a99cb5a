package store

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestTLS(t *testing.T) {
	certFile, keyFile, roots := certificate(t)
	addr := servers.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	servers.StartRedis(t, "--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-ca-cert-file", certFile, "--tls-auth-clients", "no")
	c := charge(t, "k", bucket(3, time.Hour), 1)
	trusting := openRedis(t, RedisConfig{Servers: Servers{Addresses: []string{addr}, TLS: &tls.Config{RootCAs: roots, ServerName: "redis.test"}}})
	want(t, "with the right roots", spend(trusting, c)[0], limit.Allowed, 1, 2)
	wary := openRedis(t, RedisConfig{Servers: Servers{Addresses: []string{addr}, TLS: &tls.Config{ServerName: "redis.test"}}})
	wantUndecided(t, wary, c, ReasonDial)
}

// certificate writes a certificate of its own authority, and its key, and returns it as the only one to trust.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("make a key: %v", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis.test"}, DNSNames: []string{"redis.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatalf("make a certificate: %v", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("write the key: %v", err)
	}
	roots = x509.NewCertPool()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots.AppendCertsFromPEM(text)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, content := range map[string][]byte{
		certFile: text, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatalf("write %s: %v", file, err)
		}
	}
	return certFile, keyFile, roots
}
