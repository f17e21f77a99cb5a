package sidecar

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestTLSSettingsThatDoNothingEndTheStart: an operator who set them would take a plain connection for a secured one.
func TestTLSSettingsThatDoNothingEndTheStart(t *testing.T) {
	const (
		noTLS   = "set GRPC_SERVER_USE_TLS=true as well, or remove it: the gRPC port has no TLS"
		noRedis = "write rediss:// in REDIS_URL or set REDIS_TLS=true as well, or remove it: no Redis is reached over TLS"
	)
	for environ, want := range map[string][]string{
		"GRPC_CLIENT_TLS_CACERT=ca": {"GRPC_CLIENT_TLS_CACERT: " + noTLS},
		"GRPC_SERVER_TLS_CA_CERT=ca GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k": {
			"GRPC_SERVER_TLS_CERT: " + noTLS, "GRPC_SERVER_TLS_KEY: " + noTLS, "GRPC_SERVER_TLS_CA_CERT: " + noTLS},
		"GRPC_CLIENT_TLS_SAN=envoy": {"GRPC_CLIENT_TLS_SAN: " + noTLS},
		"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k GRPC_CLIENT_TLS_CACERT=a GRPC_SERVER_TLS_CA_CERT=b": {
			"GRPC_CLIENT_TLS_CACERT and GRPC_SERVER_TLS_CA_CERT name different files: remove one of them"},
		"REDIS_URL=redis://a REDIS_TLS_CACERT=ca":                      {"REDIS_TLS_CACERT: " + noRedis},
		"REDIS_URL=a:1 REDIS_TLS_CLIENT_CERT=c REDIS_TLS_CLIENT_KEY=k": {"REDIS_TLS_CLIENT_CERT: " + noRedis, "REDIS_TLS_CLIENT_KEY: " + noRedis},
		"REDIS_URL=a:1 REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true":      {"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: " + noRedis},
		"REDIS_TLS_CACERT=ca":                              {"REDIS_TLS_CACERT: " + noRedis},
		"REDIS_TLS=true":                                   {"REDIS_TLS: set REDIS_URL as well, or remove it: there is no Redis"},
		"REDIS_URL=a:1 REDIS_PERSECOND_TLS=true":           {"REDIS_PERSECOND_TLS: set REDIS_PERSECOND=true as well, or remove it: that Redis is not used"},
		"REDIS_URL=rediss://a REDIS_TLS_CACERT=ca":         nil,
		"REDIS_URL=a:1 REDIS_TLS=true REDIS_TLS_CACERT=ca": nil,
		"REDIS_URL=a:1 REDIS_PERSECOND=true REDIS_PERSECOND_URL=rediss://b REDIS_TLS_CACERT=ca": nil,
	} {
		_, err := FromEnvironment(strings.Fields(environ), "sidecar")
		var told *ConfigError
		errors.As(err, &told)
		var got []string
		if told != nil {
			got = told.Problems
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", environ, got, want)
		}
	}
}

// TestRedisCertificatesAreReadAgain rotates the authority, the server's certificate and the sidecar's while the sidecar runs.
func TestRedisCertificatesAreReadAgain(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	cert, key := before.issue(t, "localhost", 2)
	ours, oursKey := before.issue(t, "sidecar", 3)
	port := servers.FreeAddr(t)[len("127.0.0.1:"):]
	redis := servers.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", before.file)
	s := begin(t, twoPerHour, "REDIS_URL=rediss://localhost:"+port, "REDIS_TLS_CACERT="+before.file, "REDIS_TLS_CLIENT_CERT="+ours,
		"REDIS_TLS_CLIENT_KEY="+oursKey, "STORE_BUDGET=1s")
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "ok\n")
	newCert, newKey := after.issue(t, "localhost", 4)
	redis.Do(t, "CONFIG", "SET", "tls-cert-file", newCert, "tls-key-file", newKey, "tls-ca-cert-file", after.file)
	redis.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	servers.Await(t, "the sidecar to lose Redis", func() error { return readyz(t, s, "ok (degraded: redis: ") })
	newOurs, newOursKey := after.issue(t, "sidecar", 5)
	for from, to := range map[string]string{after.file: before.file, newOurs: ours, newOursKey: oursKey} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, to, string(text))
	}
	servers.Await(t, "the sidecar to reach Redis with its new certificate", func() error { return readyz(t, s, "ok\n") })
	expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)
}

// readyz is an error until the page begins so.
func readyz(t *testing.T, s *running, want string) error {
	t.Helper()
	_, body := fetch(t, s.Addresses().HTTP, "/readyz")
	if !strings.HasPrefix(body, want) {
		return errors.New(body)
	}
	return nil
}
