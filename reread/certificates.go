package reread

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
)

// Certificates makes TLS configurations from files, and reads them again when they change. Files that cannot be read
// are logged. An empty name is no file.
func Certificates(files []string, read func() (*tls.Config, error), log *slog.Logger) (*Files[*tls.Config], error) {
	return New(files, read, func(err error) {
		if err != nil {
			log.Error("certificates changed and cannot be used; the last good ones stay", "error", err)
			return
		}
		log.Info("certificates read again")
	})
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
