package sidecar

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spillway-mesh/spillway/httpapi/reread"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// serverTLS is how clients reach the gRPC port.
func serverTLS(t settings.TLS, log *slog.Logger) (*tls.Config, error) {
	f := reread.PEM{
		CA: t.ClientCA, CAName: "GRPC_CLIENT_TLS_CACERT",
		Cert: t.Cert, Key: t.Key, CertName: "GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY",
	}
	return f.Accept(log, func(cfg *tls.Config) {
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
	f := reread.PEM{
		CA: c.ClientCA, CAName: "ADMIN_TLS_CLIENT_CA",
		Cert: c.Cert, Key: c.Key, CertName: "ADMIN_TLS_CERT and ADMIN_TLS_KEY",
	}
	return f.Accept(log, func(cfg *tls.Config) {
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

// xdsTLS is how to reach the management server.
func xdsTLS(c *settings.XDS, log *slog.Logger) (func() *tls.Config, error) {
	f := reread.PEM{
		CA: c.CA, CAName: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
		Cert: c.Cert, Key: c.Key, CertName: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
	}
	return f.Dial(log, func(cfg *tls.Config) { cfg.ServerName = cmp.Or(c.SAN, c.Host()) })
}
