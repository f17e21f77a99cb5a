package reread

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
)

// PEM is the files of a TLS configuration, and the settings that name them. What is empty is left out.
type PEM struct{ CA, CAName, Cert, Key, CertName string }

// Accept returns the configuration of a server: each connection gets what the files hold then. change sets what is not
// in them. It fails where the files cannot be read now.
func (f PEM) Accept(log *slog.Logger, change func(cfg *tls.Config)) (*tls.Config, error) {
	files, err := f.follow(log, func(cfg *tls.Config, authorities *x509.CertPool) {
		cfg.ClientCAs = authorities
		change(cfg)
	})
	if err != nil {
		return nil, err
	}
	outer := files.Current().Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.Current(), nil }
	return outer, nil
}

// Dial returns how to speak TLS to a server, for each new connection. change sets what is not in the files. It fails
// where they cannot be read now.
func (f PEM) Dial(log *slog.Logger, change func(cfg *tls.Config)) (func() *tls.Config, error) {
	files, err := f.follow(log, func(cfg *tls.Config, authorities *x509.CertPool) {
		cfg.RootCAs = authorities
		change(cfg)
	})
	if err != nil {
		return nil, err
	}
	return files.Current, nil
}

// follow makes a configuration of the files, and again when they change. Files that cannot be read are logged.
func (f PEM) follow(
	log *slog.Logger, change func(cfg *tls.Config, authorities *x509.CertPool),
) (*Files[*tls.Config], error) {
	read := func() (*tls.Config, error) {
		cfg, authorities, err := f.load()
		if err == nil {
			change(cfg, authorities)
		}
		return cfg, err
	}
	return New([]string{f.CA, f.Cert, f.Key}, read, func(err error) {
		if err != nil {
			log.Error("certificates changed and cannot be used; the last good ones stay", "error", err)
			return
		}
		log.Info("certificates read again")
	})
}

// load makes a configuration with the certificate, and returns the certificates of authorities, or nil.
func (f PEM) load() (cfg *tls.Config, authorities *x509.CertPool, err error) {
	cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.CertName, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		authorities, err = Authorities(f.CA)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.CAName, err)
		}
	}
	return cfg, authorities, nil
}

// Authorities reads certificates of authorities from a PEM file.
func Authorities(file string) (*x509.CertPool, error) {
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
