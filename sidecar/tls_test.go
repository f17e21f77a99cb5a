package sidecar

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, key := a.sign(t, template)
	a.key = key
	a.cert = must.Get(x509.ParseCertificate(der))(t)
	a.file = filepath.Join(a.dir, "ca.crt")
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// sign makes a key and a certificate for it, signed by itself if it is the first.
func (a *authority) sign(t *testing.T, template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer))(t)
	return der, key
}

// issue writes name.crt and name.key, made out to that name and to spiffe://mesh/name.
func (a *authority) issue(t *testing.T, name string, serial int64) (cert, key string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "mesh", Path: "/" + name}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, private := a.sign(t, template)
	bytes := must.Get(x509.MarshalPKCS8PrivateKey(private))(t)
	cert, key = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "PRIVATE KEY", bytes)
	return cert, key
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// client is how to connect to the server called `server`, with a certificate if cert is given.
func (a *authority) client(t *testing.T, cert, key string) grpc.DialOption {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	cfg := &tls.Config{RootCAs: pool, ServerName: "server"}
	if cert != "" {
		pair := must.Get(tls.LoadX509KeyPair(cert, key))(t)
		cfg.Certificates = []tls.Certificate{pair}
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(cfg))
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "server", 2)
	s := begin(t, twoPerYear, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert, "GRPC_SERVER_TLS_KEY="+key)
	expectCodes(t, dial(t, s.Addresses().GRPC, a.client(t, "", "")), "alice", codeOK)
	_, err := ask(dial(t, s.Addresses().GRPC), "alice")
	if err == nil {
		t.Error("a call without TLS is answered")
	}
}

func TestClientsNeedTheRightCertificate(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	cert, key := a.issue(t, "server", 2)
	envoyCert, envoyKey := a.issue(t, "envoy", 3)
	otherCert, otherKey := a.issue(t, "other", 4)
	strangeCert, strangeKey := stranger.issue(t, "envoy", 5)
	for _, san := range []string{"envoy", "spiffe://mesh/envoy", "gateway, envoy",
		"spiffe://mesh/gateway,spiffe://mesh/envoy"} {
		s := begin(t, twoPerYear, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert, "GRPC_SERVER_TLS_KEY="+key,
			"GRPC_CLIENT_TLS_CACERT="+a.file, "GRPC_CLIENT_TLS_SAN="+san)
		expectCodes(t, dial(t, s.Addresses().GRPC, a.client(t, envoyCert, envoyKey)), "alice", codeOK)
		for name, option := range map[string]grpc.DialOption{
			"no certificate": a.client(t, "", ""), "another name": a.client(t, otherCert, otherKey),
			"another authority": a.client(t, strangeCert, strangeKey),
		} {
			_, err := ask(dial(t, s.Addresses().GRPC, option), "alice")
			if err == nil {
				t.Errorf("SAN %s: a client with %s is answered", san, name)
			}
		}
	}
}

func TestCertificatesAreReadAgain(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "server", 2)
	s := begin(t, twoPerYear, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert, "GRPC_SERVER_TLS_KEY="+key)
	if got := serial(t, a, s); got != 2 {
		t.Fatalf("the server shows certificate %d, want 2", got)
	}
	writePEM(t, cert, "CERTIFICATE", []byte("broken"))
	servers.Await(t, "the broken certificate", func() error {
		serial(t, a, s)
		return s.logs("the last good ones stay")
	})
	if got := serial(t, a, s); got != 2 {
		t.Errorf("with broken files the server shows certificate %d, want 2 still", got)
	}
	a.issue(t, "server", 7)
	servers.Await(t, "the new certificate", func() error {
		if serial(t, a, s) != 7 {
			return os.ErrNotExist
		}
		return nil
	})
}

// What made files unreadable, such as their mode, may end without a change of their size and time.
func TestCertificatesThatCouldNotBeReadAreTriedAgain(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "server", 2)
	good := must.Get(os.ReadFile(cert))(t)
	s := begin(t, twoPerYear, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert, "GRPC_SERVER_TLS_KEY="+key)
	changed := time.Now().Add(time.Hour)
	replace := func(text []byte) {
		next := cert + ".next"
		write(t, next, string(text))
		must.Do(t, errors.Join(os.Chtimes(next, changed, changed), os.Rename(next, cert)))
	}
	replace(make([]byte, len(good)))
	servers.Await(t, "the broken certificate", func() error {
		serial(t, a, s)
		return s.logs("the last good ones stay")
	})
	replace(good)
	servers.Await(t, "the certificate that can be read", func() error {
		serial(t, a, s)
		return s.logs("certificates read again")
	})
	if n := strings.Count(s.log.String(), "the last good ones stay"); n != 1 {
		t.Errorf("files that could not be read are logged %d times, want once", n)
	}
}

// serial is the number of the certificate that the server shows.
func serial(t *testing.T, a *authority, s *running) int64 {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	conn, err := tls.Dial("tcp", s.Addresses().GRPC, &tls.Config{RootCAs: pool, ServerName: "server",
		NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestMissingCertificatesAreAnError(t *testing.T) {
	cfg := fromEnv(t, "PORT=0", "DEBUG_PORT=0", "GRPC_PORT=0", "GRPC_SERVER_USE_TLS=true",
		"GRPC_SERVER_TLS_CERT=no.crt", "GRPC_SERVER_TLS_KEY=no.key")
	cfg.Output = new(logBuffer)
	_, err := New(cfg)
	if err == nil {
		t.Error("New without certificates succeeds")
	}
}

func TestRedisOverTLS(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "server", 2)
	ours, oursKey := a.issue(t, "sidecar", 3)
	secure := servers.FreeAddr(t)
	redis := servers.StartRedis(t, "--tls-port", secure[len("127.0.0.1:"):], "--tls-cert-file", cert, "--tls-key-file",
		key, "--tls-ca-cert-file", a.file)
	s := begin(t, twoPerYear, "REDIS_URL=rediss://"+secure, "REDIS_TLS_CACERT="+a.file, "REDIS_TLS_CLIENT_CERT="+ours,
		"REDIS_TLS_CLIENT_KEY="+oursKey, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "STORE_SILENCE=1s",
		"STORE_PATIENCE=2s")
	plain := begin(t, twoPerYear, "REDIS_URL="+redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK)
	expectCodes(t, dial(t, plain.Addresses().GRPC), "alice", codeOK, codeOver)
}

func TestRedisIsCheckedByTheNameItIsDialledBy(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "localhost", 2)
	port := servers.FreeAddr(t)[len("127.0.0.1:"):]
	servers.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file",
		a.file, "--tls-auth-clients", "no")
	right := begin(t, twoPerYear, "REDIS_URL=rediss://localhost:"+port, "REDIS_TLS_CACERT="+a.file, "STORE_SILENCE=1s",
		"STORE_PATIENCE=2s")
	wrong := begin(t, twoPerYear, "REDIS_URL=rediss://127.0.0.1:"+port, "REDIS_TLS_CACERT="+a.file, "STORE_SILENCE=1s",
		"STORE_PATIENCE=2s")
	expectCodes(t, dial(t, right.Addresses().GRPC), "alice", codeOK)
	servers.Await(t, "readiness", func() error { return readyz(t, right, "ok\n") })
	servers.Await(t, "a refused certificate", func() error {
		if _, body := fetch(t, wrong.Addresses().HTTP, "/readyz"); !strings.Contains(body, "redis: dial") {
			return errors.New(body)
		}
		return nil
	})
}
