package sidecar

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spillway-mesh/spillway/reread"
	"github.com/spillway-mesh/spillway/settings"
)

// serverTLS reads the files of cfg, or fails.
func serverTLS(cfg settings.TLS, log *slog.Logger) (*tls.Config, error) {
	read := func() (*tls.Config, error) { return readServerTLS(cfg) }
	c, err := reread.Certificates([]string{cfg.Cert, cfg.Key, cfg.ClientCA}, read, log)
	if err != nil {
		return nil, err
	}
	outer := c.Current().Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.Current(), nil }
	return outer, nil
}

// readServerTLS makes a configuration of the files.
func readServerTLS(t settings.TLS) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY: %w", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if t.ClientCA == "" {
		return cfg, nil
	}
	cfg.ClientCAs, err = reread.Authorities(t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("GRPC_CLIENT_TLS_CACERT: %w", err)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	if names := t.Names(); len(names) > 0 {
		cfg.VerifyConnection = func(s tls.ConnectionState) error { return holdsOne(s.PeerCertificates, names) }
	}
	return cfg, nil
}

// holdsOne checks that a client's certificate, which is verified already, is made out to one of the names.
func holdsOne(chain []*x509.Certificate, names []string) error {
	var all error
	for _, san := range names {
		err := holds(chain, san)
		if err == nil {
			return nil
		}
		all = errors.Join(all, err)
	}
	return all
}

// holds checks that a client's certificate is made out to san: a DNS name, or a URI such as a SPIFFE id.
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
