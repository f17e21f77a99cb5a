package sidecar

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// secureDebug makes the debug port speak TLS, if it has a certificate.
func (s *Sidecar) secureDebug() error {
	c := s.cfg.Admin
	if c.Cert == "" {
		return nil
	}
	secure, err := adminTLS(c, s.reports.log)
	if err != nil {
		return fmt.Errorf("set up TLS of the debug port: %w", err)
	}
	s.serving.sockets.debug = tls.NewListener(s.serving.sockets.debug, secure)
	return nil
}

// adminTLS reads the files of c, again when they change, or fails.
func adminTLS(c settings.Admin, log *slog.Logger) (*tls.Config, error) {
	read := func() (*tls.Config, error) { return readAdminTLS(c) }
	files, err := newCertificates([]string{c.Cert, c.Key, c.ClientCA}, read, log)
	if err != nil {
		return nil, err
	}
	outer := files.Current().Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.Current(), nil }
	return outer, nil
}

// readAdminTLS makes a configuration of the files. A client without a certificate gets in: metrics need none, and the API looks itself.
func readAdminTLS(c settings.Admin) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("ADMIN_TLS_CERT and ADMIN_TLS_KEY: %w", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if c.ClientCA == "" {
		return cfg, nil
	}
	cfg.ClientCAs, err = loadPool(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("ADMIN_TLS_CLIENT_CA: %w", err)
	}
	cfg.ClientAuth = tls.VerifyClientCertIfGiven
	return cfg, nil
}
