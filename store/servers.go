package store

import (
	"crypto/tls"
	"time"
)

// Kind is how the servers of a store stand together. The zero value is one server.
type Kind uint8

// The kinds.
const (
	Single   Kind = iota // one server
	Sentinel             // one master with replicas; sentinels tell which it is
	Cluster              // Redis Cluster: slots over masters, each with replicas
	Ring                 // servers that know nothing of each other; each key has its place on one of them by consistent hashing
)

var kindNames = [...]string{"single", "sentinel", "cluster", "ring"}

// String is the name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Servers says where a store's servers are. The zero value is one on this machine.
type Servers struct {
	Kind      Kind
	Network   string   // "tcp" (default) or "unix"
	Addresses []string // host:port or the path of a socket: the server, the sentinels, some nodes of the cluster, or every shard of the ring; default localhost:6379
	Master    string   // of Sentinel: the name that the sentinels know it by

	Username    string                         // of an ACL user; empty for the default user
	Password    string                         //
	Credentials func() (user, password string) // asked for each new connection, in place of Username and Password; nil: those
	Sentinels   func() (user, password string) // the same for connections to sentinels; nil: none
	DB          int                            // number of the database, default 0; a cluster has no other
	TLS         *tls.Config                    // nil: none; a ServerName in it stands for every server, else each is checked by its own name

	PoolSize    int           // connections at most, per server; default 32
	MinIdle     int           // connections kept ready, per server; default 4, never above PoolSize
	DialTimeout time.Duration // to connect and greet; default 500 ms. It runs beside the requests, which wait their budget only
}
