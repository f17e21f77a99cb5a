package fleet

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Defaults of Servers.
const (
	defaultAddress     = "localhost:6379"
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
	TLS         func() *tls.Config             // asked for each new connection; nil: no TLS. A ServerName in it stands for every server, else each is checked by its own name

	// Dial connects, in place of the network and TLS. Nil: those.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Streams     int           // connections at most, per server, which all calls share; default and at most 4
	DialTimeout time.Duration // to connect; default 500 ms. It runs beside the requests

	// AnswerTimeout is how long a server may take to answer what is asked beside the requests: a greeting, who holds which slot. Default
	// DialTimeout, but at most 500 ms, for one that hangs is to be found out however patient dialling is; never less than the store's budget.
	AnswerTimeout time.Duration
}

func (s Servers) withDefaults(b Bounds) Servers {
	if s.Network == "" {
		s.Network = "tcp"
	}
	if len(s.Addresses) == 0 {
		s.Addresses = []string{defaultAddress}
	}
	s.DialTimeout = positive(s.DialTimeout, defaultDialTimeout)
	s.AnswerTimeout = max(positive(s.AnswerTimeout, min(s.DialTimeout, longestAnswer)), b.Silence)
	return s
}

// fewStreams is how many connections a server gets. One of them does the work as long as it can; the others are there when it is lost or
// silent, as happens often where packets get lost.
const fewStreams = 4

// streams is how many connections a server gets.
func (s *Servers) streams() int { return min(positive(s.Streams, fewStreams), fewStreams) }

// options are those of the client library for what is asked beside the requests: who is the master, who holds which slot.
func (s *Servers) options(address string) *redis.Options {
	dial := s.dialer()
	return &redis.Options{
		// Its own dialer would finish a handshake of TLS after its caller has gone.
		Dialer:  func(ctx context.Context, _, address string) (net.Conn, error) { return bound(dial(ctx, address)) },
		Network: s.Network, Addr: address, Username: s.Username, Password: s.Password, CredentialsProvider: s.Credentials,
		MaxRetries:               1, // what is asked may be asked twice
		MinRetryBackoff:          -1,
		MaxRetryBackoff:          -1,
		ContextTimeoutEnabled:    true,
		DialTimeout:              s.DialTimeout,
		DialerRetries:            1,
		ReadTimeout:              s.AnswerTimeout,
		WriteTimeout:             s.AnswerTimeout,
		PoolTimeout:              s.AnswerTimeout,
		PoolSize:                 1,
		PipelinePoolSize:         -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// silence is a logger for go-redis that writes nothing: what it has to say arrives as an error and is counted.
type silence struct{}

// Printf drops the line.
func (silence) Printf(context.Context, string, ...any) {}

var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })
