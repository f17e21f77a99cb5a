package sidecar

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestRedisCertificatesAreReadAgain rotates the authority, the server's certificate and the sidecar's while the sidecar
// runs.
func TestRedisCertificatesAreReadAgain(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	cert, key := before.issue(t, "localhost", 2)
	ours, oursKey := before.issue(t, "sidecar", 3)
	port := servers.FreeAddr(t)[len("127.0.0.1:"):]
	redis := servers.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", before.file)
	s := begin(t, twoPerYear, "REDIS_URL=rediss://localhost:"+port, "REDIS_TLS_CACERT="+before.file,
		"REDIS_TLS_CLIENT_CERT="+ours,
		"REDIS_TLS_CLIENT_KEY="+oursKey, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	servers.Await(t, "readiness", func() error { return readyz(t, s, "ok\n") })
	newCert, newKey := after.issue(t, "localhost", 4)
	redis.Do(t, "CONFIG", "SET", "tls-cert-file", newCert, "tls-key-file", newKey, "tls-ca-cert-file", after.file)
	redis.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	servers.Await(t, "the sidecar to lose Redis", func() error { return readyz(t, s, "ok (degraded: redis: ") })
	newOurs, newOursKey := after.issue(t, "sidecar", 5)
	for from, to := range map[string]string{after.file: before.file, newOurs: ours, newOursKey: oursKey} {
		text := must.Get(os.ReadFile(from))(t)
		write(t, to, string(text))
	}
	servers.Await(t, "the sidecar to reach Redis with its new certificate", func() error {
		return readyz(t, s, "ok\n")
	})
	client := dial(t, s.Addresses().GRPC)
	for n := range idleConnections { // over TLS it shows only in its next call that a connection has ended
		expectCodes(t, client, fmt.Sprint("user-", n), codeOK)
	}
	expectCodes(t, client, "alice", codeOK, codeOK, codeOver)
}

// idleConnections is how many connections of a pool may wait for their next call.
const idleConnections = 4

// readyz is an error until the page begins so.
func readyz(t *testing.T, s *running, want string) error {
	t.Helper()
	_, body := fetch(t, s.Addresses().HTTP, "/readyz")
	if !strings.HasPrefix(body, want) {
		return errors.New(body)
	}
	return nil
}
