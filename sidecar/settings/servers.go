package settings

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/spillway-mesh/spillway/httpapi/reread"
	"github.com/spillway-mesh/spillway/redis"
)

// kinds are the types of a store in the terms of package redis.
var kinds = map[Kind]redis.Kind{
	Single: redis.Single, Sentinel: redis.Sentinel, Cluster: redis.Cluster, Ring: redis.Ring,
}

// RedisServers returns where the main Redis is, for another program that shares it with sidecars.
func (c *Config) RedisServers(log *slog.Logger) (redis.Servers, error) {
	return c.Redises()[0].Servers(c.RedisTLS, log, func(string) {})
}

// Servers returns where the servers of a store are, in the terms of package redis. hide gets each password that is read
// from a file.
func (r NamedRedis) Servers(secure RedisTLS, log *slog.Logger, hide func(secret string)) (redis.Servers, error) {
	t, err := r.Target()
	if err != nil {
		return redis.Servers{}, err
	}
	s := redis.Servers{
		Kind: kinds[t.Kind], Network: t.Network(), Addresses: t.Addresses, Master: t.Master, DB: t.DB(),
		PoolSize: r.PoolSize, DialTimeout: r.Timeout,
	}
	if t.Secured() {
		s.TLS, err = redisTLS(secure, log)
		if err != nil {
			return s, err
		}
	}
	return s, addLogins(&s, r, t, log, hide)
}

// addLogins sets who logs in to the servers, and to the sentinels.
func addLogins(s *redis.Servers, r NamedRedis, t *Target, log *slog.Logger, hide func(secret string)) error {
	servers, sentinels := r.LoginSources()
	server, sentinel := t.Logins()
	server, err := servers.Read(server)
	if err != nil {
		return err
	}
	s.Username, s.Password = server.User, server.Password
	if r.AuthFile != "" {
		s.Credentials = rotating(servers, server, log, hide)
	}
	if t.Kind != Sentinel {
		return nil
	}
	sentinel, err = sentinels.Read(sentinel)
	if err != nil {
		return err
	}
	if sentinel != (Login{}) {
		s.Sentinels = rotating(sentinels, sentinel, log, hide)
	}
	return nil
}

// rotating returns a function that reads the source each time, so that a file may change while the program runs. While
// the file cannot be read, the function returns the last login that it read, at first the given one. hide gets each
// password before it is used.
func rotating(
	source LoginSource, first Login, log *slog.Logger, hide func(secret string),
) func() (user, password string) {
	var last atomic.Pointer[Login]
	last.Store(&first)
	hide(first.Password)
	return func() (user, password string) {
		now, err := source.Read(first)
		if err != nil {
			log.Warn("a password cannot be read; the last one stays", "error", err)
			now = *last.Load()
			return now.User, now.Password
		}
		hide(now.Password)
		last.Store(&now)
		return now.User, now.Password
	}
}

// redisTLS returns how to speak TLS to Redis. Each server is checked by the name that it was dialled by.
func redisTLS(r RedisTLS, log *slog.Logger) (func() *tls.Config, error) {
	f := reread.PEM{
		CA: r.CA, CAName: "REDIS_TLS_CACERT", Cert: r.Cert, Key: r.Key, CertName: "REDIS_TLS_CLIENT_CERT",
	}
	return f.Dial(log, func(cfg *tls.Config) {
		if r.SkipVerify {
			skipHostname(cfg)
		}
	})
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
