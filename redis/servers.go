package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"
)

const (
	// LeastPool is the least PoolSize: after so many failed dials in a row go-redis dials only once a second.
	LeastPool = 8
	// MostInFlight is how many batches are under way to one server at once, unless Config.InFlight is set. Each has a
	// connection.
	MostInFlight = 2
)

// Kind is how the servers of a store are arranged. The zero value is one server.
type Kind uint8

// The kinds.
const (
	Single   Kind = iota // one server
	Sentinel             // one master with replicas; sentinels know which server is the master
	Cluster              // Redis Cluster: slots over masters, each with replicas
	Ring                 // servers that know nothing of each other; a hash of each key chooses its server
)

// Servers is where a store's servers are. The zero value is one on this machine.
type Servers struct {
	Kind      Kind
	Network   string   // "tcp" (default) or "unix"
	Addresses []string // host:port or a socket's path: server, sentinels, some nodes or a ring; default localhost:6379
	Master    string   // of Sentinel: the name that the sentinels know it by

	Username    string                         // of an ACL user; empty for the default user
	Password    string                         // of that user; empty: no AUTH is sent
	Credentials func() (user, password string) // asked at each connect, in place of Username and Password; nil: those
	Sentinels   func() (user, password string) // of the sentinels, asked at each connect; nil: none
	DB          int                            // number of the database, default 0, the only one of a cluster
	TLS         func() *tls.Config             // asked at each connect; nil: no TLS. Without ServerName it is the host

	// Dial connects, in place of the network and TLS. Nil: those.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	PoolSize    int           // connections at most for batches, per server; default and least 8
	DialTimeout time.Duration // to connect; default 500 ms
}

func (s Servers) withDefaults() Servers {
	s.Network = cmp.Or(s.Network, "tcp")
	if len(s.Addresses) == 0 {
		s.Addresses = []string{"localhost:6379"}
	}
	s.DialTimeout = cmp.Or(max(s.DialTimeout, 0), 500*time.Millisecond)
	s.PoolSize = max(s.PoolSize, LeastPool)
	return s
}
