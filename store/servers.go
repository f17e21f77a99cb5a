package store

import (
	"crypto/tls"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Defaults of Servers.
const (
	defaultAddress     = "localhost:6379"
	defaultPoolSize    = 32
	defaultMinIdle     = 4
	defaultDialTimeout = 500 * time.Millisecond
	longestAnswer      = 500 * time.Millisecond
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
	Sentinels   func() (user, password string) // of the sentinels, asked once; nil: none
	DB          int                            // number of the database, default 0; a cluster has no other
	TLS         *tls.Config                    // nil: none; a ServerName in it stands for every server, else each is checked by its own name

	PoolSize    int           // connections at most, per server; default 32
	MinIdle     int           // connections kept ready, per server; default 4, never above PoolSize
	DialTimeout time.Duration // to connect; default 500 ms. It runs beside the requests, which wait their budget only

	// AnswerTimeout is how long a server may take to answer what is asked beside the requests: a greeting, who holds which slot. Default
	// DialTimeout, but at most 500 ms, for one that hangs is to be found out however patient dialling is; never less than the store's budget.
	AnswerTimeout time.Duration
}

func (s Servers) withDefaults(budget time.Duration) Servers {
	if s.Network == "" {
		s.Network = "tcp"
	}
	if len(s.Addresses) == 0 {
		s.Addresses = []string{defaultAddress}
	}
	s.PoolSize = positive(s.PoolSize, defaultPoolSize)
	s.MinIdle = min(positive(s.MinIdle, defaultMinIdle), s.PoolSize)
	s.DialTimeout = positive(s.DialTimeout, defaultDialTimeout)
	s.AnswerTimeout = max(positive(s.AnswerTimeout, min(s.DialTimeout, longestAnswer)), budget)
	return s
}

// options are those of the client of one server. They turn off all that the library would do behind our back: retries after an unknown
// outcome, several dials per request, a second pool, raised timeouts during maintenance. Its own timeouts are for
// what it asks by itself; what a request may wait is the deadline of its context.
func (s Servers) options(address string) *redis.Options {
	return &redis.Options{
		Network: s.Network, Addr: address, Username: s.Username, Password: s.Password, CredentialsProvider: s.Credentials, DB: s.DB, TLSConfig: s.TLS,
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		DialTimeout:              s.DialTimeout,
		DialerRetries:            1,
		ReadTimeout:              s.AnswerTimeout,
		WriteTimeout:             s.AnswerTimeout,
		PoolTimeout:              s.AnswerTimeout,
		PoolSize:                 s.PoolSize,
		MinIdleConns:             s.MinIdle,
		PipelinePoolSize:         -1,
		ConnMaxIdleTime:          5 * time.Minute,
		ConnMaxLifetime:          30 * time.Minute,
		ConnMaxLifetimeJitter:    5 * time.Minute,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}
