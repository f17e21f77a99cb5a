package sidecar

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// target is where a Redis is, as REDIS_URL and its companions say.
type target struct {
	network, address   string
	username, password string
	db                 int
	tls                bool
}

// String is for logs: it holds no secret.
func (t target) String() string {
	scheme := "redis://"
	if t.tls {
		scheme = "rediss://"
	}
	if t.network == "unix" {
		return "unix://" + t.address
	}
	return scheme + t.address + "/" + strconv.Itoa(t.db)
}

// target reads REDIS_URL. Its errors name the variable and never show it, because it may hold a password.
func (r *Redis) target() (target, error) {
	if r.URL == "" {
		return target{}, nil
	}
	t, err := parseRedis(r.URL, r.SocketType)
	if err != nil {
		return t, fmt.Errorf("REDIS_URL: %w", err)
	}
	t.tls = t.tls || r.TLS
	if r.Auth != "" {
		user, password, both := strings.Cut(r.Auth, ":")
		if !both {
			user, password = "", r.Auth
		}
		t.username, t.password = user, password
	}
	return t, nil
}

var errList = errors.New("a list of servers is not supported yet (sentinel, cluster): name one server")

// parseRedis reads the forms of REDIS_URL. A path is a socket, whatever the socket type says.
func parseRedis(text, socketType string) (target, error) {
	if !strings.Contains(text, "://") {
		return parsePlain(text, socketType)
	}
	if strings.Contains(text[strings.LastIndexByte(text, '@')+1:], ",") {
		return target{}, errList
	}
	u, err := url.Parse(text)
	if err != nil {
		return target{}, errors.New("not a URL: use host:port, redis://[user:password@]host:port[/db], rediss:// or a socket's path; a password's special bytes need percent encoding")
	}
	password, _ := u.User.Password()
	t := target{username: u.User.Username(), password: password}
	switch u.Scheme {
	case "unix":
		t.network, t.address = "unix", u.Host+u.Path
		if t.address == "" {
			return t, errors.New("unix:// needs a path, as in unix:///run/redis.sock")
		}
		return t, nil
	case "redis", "rediss":
		t.tls = u.Scheme == "rediss"
		return parseHost(t, u)
	}
	return t, fmt.Errorf("%q is not a scheme: use redis, rediss or unix", u.Scheme)
}

// parsePlain reads host:port, or the path of a socket.
func parsePlain(text, socketType string) (target, error) {
	if strings.HasPrefix(text, "/") || strings.HasPrefix(text, "@") || strings.HasPrefix(text, ".") {
		return target{network: "unix", address: text}, nil
	}
	if strings.Contains(text, ",") {
		return target{}, errList
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil && strings.EqualFold(socketType, "unix") {
		return target{network: "unix", address: text}, nil
	}
	if err != nil || !isPort(port) {
		return target{}, errors.New("not an address: use host:port, redis://host:port, rediss:// or a socket's path")
	}
	return target{network: "tcp", address: net.JoinHostPort(host, port)}, nil
}

// parseHost reads host, port and database of a redis:// URL.
func parseHost(t target, u *url.URL) (target, error) {
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "6379"
	}
	t.network, t.address = "tcp", net.JoinHostPort(host, port)
	if db := strings.Trim(u.Path, "/"); db != "" {
		n, err := strconv.Atoi(db)
		if err != nil || n < 0 {
			return t, fmt.Errorf("%q is not a database: use a number, as in redis://host:6379/0", db)
		}
		t.db = n
	}
	if u.RawQuery != "" {
		return t, errors.New("parameters after ? are not supported: use REDIS_POOL_SIZE, REDIS_TIMEOUT and REDIS_TLS_*")
	}
	return t, nil
}

func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0 && n < 1<<16
}

// clientTLS is how to speak TLS to Redis.
func (r *Redis) clientTLS(t target) (*tls.Config, error) {
	if !t.tls {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.network == "tcp" {
		cfg.ServerName, _, _ = net.SplitHostPort(t.address)
	}
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
