package sidecar

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// certificates serves TLS from files and reads them again when they change. A change that cannot be read is logged, and
// the last good files stay in use.
type certificates struct {
	cfg TLS
	log *slog.Logger

	mu     sync.Mutex // guards the rest
	stamp  string     // of the files that were read last, good or bad
	inUse  *tls.Config
	looked time.Time
}

// lookEvery bounds how often handshakes look at the files.
const lookEvery = time.Second

// serverTLS reads the files of cfg, or fails.
func serverTLS(cfg TLS, log *slog.Logger) (*tls.Config, error) {
	c := &certificates{cfg: cfg, log: log}
	c.stamp = c.stampFiles()
	first, err := c.read()
	if err != nil {
		return nil, err
	}
	c.inUse, c.looked = first, time.Now()
	outer := first.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil }
	return outer, nil
}

// current is the configuration for a new connection.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
		return c.inUse
	}
	c.looked = time.Now()
	stamp := c.stampFiles()
	if stamp == c.stamp {
		return c.inUse
	}
	c.stamp = stamp
	fresh, err := c.read()
	if err != nil {
		c.log.Error("certificates changed and cannot be used; the last good ones stay", "error", err)
		return c.inUse
	}
	c.log.Info("certificates read again")
	c.inUse = fresh
	return fresh
}

// stampFiles tells one state of the files from another.
func (c *certificates) stampFiles() string {
	var b strings.Builder
	for _, file := range []string{c.cfg.Cert, c.cfg.Key, c.cfg.ClientCA} {
		info, err := os.Stat(file)
		if err != nil {
			b.WriteString("-;")
			continue
		}
		fmt.Fprintf(&b, "%d/%d;", info.ModTime().UnixNano(), info.Size())
	}
	return b.String()
}

// read makes a configuration of the files.
func (c *certificates) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.cfg.Cert, c.cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY: %w", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if c.cfg.ClientCA == "" {
		return cfg, nil
	}
	cfg.ClientCAs, err = loadPool(c.cfg.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("GRPC_CLIENT_TLS_CACERT: %w", err)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	if c.cfg.SAN != "" {
		cfg.VerifyConnection = func(s tls.ConnectionState) error { return holds(s.PeerCertificates, c.cfg.SAN) }
	}
	return cfg, nil
}

// holds checks that a client's certificate, which is verified already, is made out to san: a DNS name, or a URI such as a
// SPIFFE id.
func holds(chain []*x509.Certificate, san string) error {
	if len(chain) == 0 {
		return errors.New("the client showed no certificate")
	}
	if !strings.Contains(san, "://") {
		return chain[0].VerifyHostname(san)
	}
	for _, uri := range chain[0].URIs {
		if uri.String() == san {
			return nil
		}
	}
	return fmt.Errorf("the client's certificate is not made out to %s", san)
}
