package store

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestTLS(t *testing.T) {
	settings, trusted := secured(t)
	server := servers.StartRedis(t, settings...)
	c := charge(t, "k", bucket(3, time.Hour), 1)
	trusting := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}, TLS: always(trusted)}})
	want(t, "with the right roots", spend(trusting, c)[0], limit.Allowed, 1, 2)
	wary := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}, TLS: always(&tls.Config{ServerName: trusted.ServerName})}})
	wantUndecided(t, wary, c, fleet.ReasonDial)
}

// always is one configuration for all connections.
func always(config *tls.Config) func() *tls.Config { return func() *tls.Config { return config } }

// TestDeadTLSConnectionsCostNoCall: connections that ended are replaced before the next call.
func TestDeadTLSConnectionsCostNoCall(t *testing.T) {
	settings, trusted := secured(t)
	for fault, strike := range map[string]func(t *testing.T, server *servers.Redis){
		"all connections are closed": closeClients,
		"the server starts again":    func(t *testing.T, server *servers.Redis) { server.Kill(t); server.Start(t) },
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(fault+"/"+tls.VersionName(version), func(t *testing.T) {
				server := servers.StartRedis(t, settings...)
				config := trusted.Clone()
				config.MaxVersion = version
				r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}, TLS: always(config)}})
				servers.Await(t, "connections", func() error { return notYet(r.Stats().Fleet.Idle == 4) })
				strike(t, server)
				servers.Await(t, "other connections", func() error {
					s := r.Stats().Fleet
					return notYet(s.Opened >= 8 && s.Idle == 4)
				})
				wantNoCallLost(t, r, 50)
			})
		}
	}
}

// closeClients makes a server close the connections of all others.
func closeClients(t *testing.T, server *servers.Redis) {
	t.Helper()
	server.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
}

// wantNoCallLost wants a number of calls, one after the other, to be decided with the breakers closed all the time.
func wantNoCallLost(t *testing.T, r *Redis, calls int) {
	t.Helper()
	lost := map[string]int{}
	for i := range calls {
		d := spend(r, charge(t, fmt.Sprint("k", i), bucket(1_000_000, year), 1))[0]
		if d.Outcome == limit.Undecided {
			lost[d.Reason]++
		}
	}
	if len(lost) > 0 {
		t.Errorf("of %d calls undecided: %v", calls, lost)
	}
	for _, s := range r.Stats().Shards {
		if s.Breaker.Opened > 0 {
			t.Errorf("the breaker of %s opened", s.Name)
		}
	}
}

func TestTLSServerComesBackUnderLoad(t *testing.T) {
	settings, trusted := secured(t)
	server := servers.StartRedis(t, settings...)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}, TLS: always(trusted)}, Budget: steady, DenialEntries: -1})
	w := watchOne(t, r, charge(t, "k", bucket(1_000_000, year), 1))
	server.Kill(t)
	w.awaitLost(t)
	server.Start(t)
	wantFoundByAProbe(t, r, w)
}

// TestCloseDuringATLSHandshake closes while servers take connections and say nothing.
func TestCloseDuringATLSHandshake(t *testing.T) {
	for kind, config := range everyKind(blackHole(t), blackHole(t)) {
		t.Run(kind, func(t *testing.T) {
			config.TLS, config.DialTimeout = always(&tls.Config{ServerName: "redis.test"}), 5*time.Second
			if config.PerSecond != nil {
				config.PerSecond.TLS, config.PerSecond.DialTimeout = config.TLS, config.DialTimeout
			}
			leavesNothing(t, func(t *testing.T) { closeUnderLoad(t, config) })
		})
	}
}

func TestSentinelWithTLS(t *testing.T) {
	t.Parallel() // it mostly waits
	settings, trusted := secured(t)
	s := servers.StartSentinels(t, settings...)
	var b trips
	r := openRedis(t, RedisConfig{
		Servers: fleet.Servers{Kind: fleet.Sentinel, Addresses: s.Addrs()[:1], Master: s.Master, TLS: always(trusted)},
		Budget:  steady, DenialEntries: -1, OnBreaker: b.note,
	})
	c := charge(t, "k", bucket(1_000_000, year), 1)
	awaitAllowed(t, r, c)
	old := s.Current(t)
	replaced(t, r, 1, func() { closeClients(t, old) })
	wantNoCallLost(t, r, 50)
	w := watchOne(t, r, c)
	s.Failover(t)
	s.AwaitFailover(t, old)
	s.AwaitReplica(t, old)
	wantShortFailover(t, w)
	if got := b.names(); len(got) > 0 {
		t.Errorf("breakers that opened: %v", got)
	}
}

func TestClusterWithTLS(t *testing.T) {
	t.Parallel() // it mostly waits
	settings, trusted := secured(t)
	c := sharedCluster{servers.StartCluster(t, settings...), t}
	r := openCluster(t, c, RedisConfig{Servers: fleet.Servers{TLS: always(trusted)}, DenialEntries: -1})
	wantNoCallLost(t, r, 50)
	replaced(t, r, 3, func() {
		for _, node := range c.Nodes {
			closeClients(t, node)
		}
	})
	wantNoCallLost(t, r, 50)
	dead := c.Masters(t)[0]
	orphan := inSlots(t, c.Slots(t, dead), "orphan", bucket(1_000_000, year))
	w := watchOne(t, r, orphan)
	dead.Kill(t)
	killed := time.Now()
	w.awaitLost(t)
	w.awaitDecided(t, 100)
	t.Logf("recovered %v after the kill", w.lastLost().Sub(killed))
}

// secured is the settings of servers that speak TLS only, also among each other, and what makes a client trust them.
func secured(t *testing.T) (settings []string, trusted *tls.Config) {
	t.Helper()
	certFile, keyFile, roots := certificate(t)
	settings = []string{"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile, "--tls-auth-clients", "no"}
	return settings, &tls.Config{RootCAs: roots, ServerName: "redis.test"}
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

// replaced does something that ends all connections to so many servers, and waits until the store has others.
func replaced(t *testing.T, r *Redis, nodes int64, strike func()) {
	t.Helper()
	servers.Await(t, "all connections", func() error { return notYet(r.Stats().Fleet.Idle >= 4*nodes) })
	ended := r.Stats().Fleet.Ended
	strike()
	servers.Await(t, "other connections", func() error {
		s := r.Stats().Fleet
		return notYet(s.Ended >= ended+4*nodes && s.Idle >= 4*nodes)
	})
}
