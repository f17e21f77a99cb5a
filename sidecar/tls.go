package sidecar

import (
	"cmp"
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

// pemFiles are the files of a TLS configuration, and the settings that name them. What is empty is left out.
type pemFiles struct{ ca, caName, cert, key, certName string }

// names are the files to look at for changes.
func (f pemFiles) names() []string { return []string{f.ca, f.cert, f.key} }

// read makes a configuration with the certificate, and returns the certificates of authorities, or nil.
func (f pemFiles) read() (cfg *tls.Config, authorities *x509.CertPool, err error) {
	cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.certName, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if f.ca != "" {
		authorities, err = loadPool(f.ca)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.caName, err)
		}
	}
	return cfg, authorities, nil
}

// acceptTLS is the configuration of a server: each connection gets what the files hold then. change sets what is not in
// them.
func acceptTLS(f pemFiles, log *slog.Logger, change func(cfg *tls.Config)) (*tls.Config, error) {
	files, err := newCertificates(f.names(), func() (*tls.Config, error) {
		cfg, authorities, err := f.read()
		if err == nil {
			cfg.ClientCAs = authorities
			change(cfg)
		}
		return cfg, err
	}, log)
	if err != nil {
		return nil, err
	}
	outer := files.Current().Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.Current(), nil }
	return outer, nil
}

// serverTLS is how clients reach the gRPC port.
func serverTLS(t settings.TLS, log *slog.Logger) (*tls.Config, error) {
	f := pemFiles{t.ClientCA, "GRPC_CLIENT_TLS_CACERT", t.Cert, t.Key, "GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY"}
	return acceptTLS(f, log, func(cfg *tls.Config) {
		cfg.NextProtos = []string{"h2"}
		if cfg.ClientCAs == nil {
			return
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		if names := t.Names(); len(names) > 0 {
			cfg.VerifyConnection = func(s tls.ConnectionState) error { return holdsOne(s.PeerCertificates, names) }
		}
	})
}

// adminTLS is how clients reach the debug port. One without a certificate gets in: metrics need none, and the API looks
// itself.
func adminTLS(c settings.Admin, log *slog.Logger) (*tls.Config, error) {
	f := pemFiles{c.ClientCA, "ADMIN_TLS_CLIENT_CA", c.Cert, c.Key, "ADMIN_TLS_CERT and ADMIN_TLS_KEY"}
	return acceptTLS(f, log, func(cfg *tls.Config) {
		cfg.NextProtos = []string{"http/1.1"}
		if cfg.ClientCAs != nil {
			cfg.ClientAuth = tls.VerifyClientCertIfGiven
		}
	})
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

// dialTLS returns how to speak TLS to a server, for each new connection: the files are read again when they change. It
// fails where they cannot be read now.
func dialTLS(f pemFiles, log *slog.Logger, change func(cfg *tls.Config)) (func() *tls.Config, error) {
	files, err := newCertificates(f.names(), func() (*tls.Config, error) {
		cfg, authorities, err := f.read()
		if err == nil {
			cfg.RootCAs = authorities
			change(cfg)
		}
		return cfg, err
	}, log)
	if err != nil {
		return nil, err
	}
	return files.Current, nil
}

// redisTLS is how to reach Redis. Each server is checked by the name that it was dialled by.
func redisTLS(r settings.RedisTLS, log *slog.Logger) (func() *tls.Config, error) {
	f := pemFiles{r.CA, "REDIS_TLS_CACERT", r.Cert, r.Key, "REDIS_TLS_CLIENT_CERT"}
	return dialTLS(f, log, func(cfg *tls.Config) {
		if r.SkipVerify {
			skipHostname(cfg)
		}
	})
}

// xdsTLS is how to reach the management server.
func xdsTLS(c *settings.XDS, log *slog.Logger) (func() *tls.Config, error) {
	f := pemFiles{
		c.CA, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", c.Cert, c.Key, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
	}
	return dialTLS(f, log, func(cfg *tls.Config) { cfg.ServerName = cmp.Or(c.SAN, c.Host()) })
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
