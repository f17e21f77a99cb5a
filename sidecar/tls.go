package sidecar

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spillway-mesh/spillway/reread"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// newCertificates makes TLS configurations from files, and reads them again when they change: what cannot be read is
// logged. An empty name names none.
func newCertificates(
	files []string, read func() (*tls.Config, error), log *slog.Logger,
) (*reread.Files[*tls.Config], error) {
	return reread.New(files, read, func(err error) {
		if err != nil {
			log.Error("certificates changed and cannot be used; the last good ones stay", "error", err)
			return
		}
		log.Info("certificates read again")
	})
}

// serverTLS reads the files of cfg, or fails.
func serverTLS(cfg settings.TLS, log *slog.Logger) (*tls.Config, error) {
	read := func() (*tls.Config, error) { return readServerTLS(cfg) }
	c, err := newCertificates([]string{cfg.Cert, cfg.Key, cfg.ClientCA}, read, log)
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
	cfg.ClientCAs, err = loadPool(t.ClientCA)
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

// redisTLS returns how to speak TLS to Redis, for each new connection: the files are read again when they change. It fails where they
// cannot be read now.
func redisTLS(r settings.RedisTLS, log *slog.Logger) (func() *tls.Config, error) {
	read := func() (*tls.Config, error) { return readRedisTLS(r) }
	c, err := newCertificates([]string{r.CA, r.Cert, r.Key}, read, log)
	if err != nil {
		return nil, err
	}
	return c.Current, nil
}

// readRedisTLS makes a configuration of the files. Each server is checked by the name that it was dialled by.
func readRedisTLS(r settings.RedisTLS) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.CA != "" {
		pool, err := loadPool(r.CA)
		if err != nil {
			return nil, fmt.Errorf("REDIS_TLS_CACERT: %w", err)
		}
		cfg.RootCAs = pool
	}
	if r.Cert != "" {
		pair, err := tls.LoadX509KeyPair(r.Cert, r.Key)
		if err != nil {
			return nil, fmt.Errorf("REDIS_TLS_CLIENT_CERT: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if r.SkipVerify {
		skipHostname(cfg)
	}
	return cfg, nil
}

// skipHostname checks the chain of the server's certificate but not the name in it.
func skipHostname(cfg *tls.Config) {
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the server showed no certificate")
		}
		between := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			between.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: between})
		return err
	}
}

// loadPool reads certificates of authorities from a PEM file.
func loadPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return pool, nil
}
