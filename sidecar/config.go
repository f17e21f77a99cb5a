package sidecar

import (
	"io"
	"io/fs"
	"strconv"
	"time"
)

// Config is all settings of a sidecar. FromEnvironment fills it; the names of variables, their units and defaults stand
// in the tags. A variable that is set but empty counts as not set.
type Config struct {
	Listen    Listen
	TLS       TLS
	Log       Log
	Tracing   Tracing
	Rules     Rules
	Redis     Redis `envPrefix:"REDIS_"`           // without a URL there is none, and each sidecar counts alone in memory
	PerSecond Redis `envPrefix:"REDIS_PERSECOND_"` // of limits with a window of at most a second, with Store.PerSecond
	RedisTLS  RedisTLS
	Store     Store
	Answer    Answer
	Metrics   Metrics

	Version  string    `env:"-"` // of this program
	Warnings []string  `env:"-"` // what was set and does not do what it says; logged at start
	Output   io.Writer `env:"-"` // takes the log; nil: standard output
}

// Listen is where the sidecar listens. Ports may be 0, which picks a free one. An empty host is loopback, or every
// interface where the program was started under the name `ratelimit`.
type Listen struct {
	Host      string `env:"HOST"`                        // of /json and the probes
	Port      uint16 `env:"PORT" envDefault:"8080"`      //
	GRPCHost  string `env:"GRPC_HOST"`                   // of the RateLimitService
	GRPCPort  uint16 `env:"GRPC_PORT" envDefault:"8081"` //
	DebugHost string `env:"DEBUG_HOST"`                  // of rules, counters and profiles
	DebugPort uint16 `env:"DEBUG_PORT" envDefault:"6070"`

	// UDS is a Unix socket beside the TCP port: a path of at most 107 bytes, or @name for an abstract one.
	UDS string `env:"GRPC_UDS"`
	// UDSMode lets every process connect that can enter the socket's folder: in a pod Envoy runs under another user, and
	// one that cannot connect lets all requests pass. 0660 with a shared group is the stricter choice.
	UDSMode SocketMode `env:"GRPC_UDS_MODE" envDefault:"0666"`

	MaxAge      time.Duration `env:"GRPC_MAX_CONNECTION_AGE" envDefault:"24h"`      // then clients are asked to reconnect
	MaxAgeGrace time.Duration `env:"GRPC_MAX_CONNECTION_AGE_GRACE" envDefault:"1h"` // then they are cut off
	Reflection  bool          `env:"GRPC_REFLECTION"`                               // lets tools list the services
	DrainDelay  time.Duration `env:"DRAIN_DELAY" envDefault:"0s"`                   // from failing health to refusing calls; 0 where Envoy has no other endpoint
}

// SocketMode is the permissions of a socket, written in octal.
type SocketMode fs.FileMode

// UnmarshalText reads octal digits.
func (m *SocketMode) UnmarshalText(text []byte) error {
	bits, err := strconv.ParseUint(string(text), 8, 9)
	if err != nil {
		return err
	}
	*m = SocketMode(bits)
	return nil
}

// TLS secures the gRPC listeners. The files are read again when they change.
type TLS struct {
	Use      bool   `env:"GRPC_SERVER_USE_TLS"`
	Cert     string `env:"GRPC_SERVER_TLS_CERT"`    // file
	Key      string `env:"GRPC_SERVER_TLS_KEY"`     // file
	ClientCA string `env:"GRPC_CLIENT_TLS_CACERT"`  // file; with it clients need a certificate
	CAAlias  string `env:"GRPC_SERVER_TLS_CA_CERT"` // what Envoy Gateway calls ClientCA
	SAN      string `env:"GRPC_CLIENT_TLS_SAN"`     // DNS name or URI that a client's certificate must hold
}

// Log is what the log looks like.
type Log struct {
	Level  string `env:"LOG_LEVEL" envDefault:"info"`  // error, warn, info, debug, trace
	Format string `env:"LOG_FORMAT" envDefault:"text"` // text or json

	Decisions     string  `env:"LOG_DECISIONS" envDefault:"off"`    // which decisions have a line, at level info: off, refused (or would be, in shadow mode) or all
	DecisionsRate float64 `env:"LOG_DECISIONS_RATE" envDefault:"1"` // share of them, 0 to 1; never more than 100 lines a second
}

// Rules is where the rules are.
type Rules struct {
	Path          string `env:"RULES"` // a file, or a directory of .yaml and .yml files; wins over RUNTIME_ROOT
	Root          string `env:"RUNTIME_ROOT" envDefault:"/srv/runtime_data/current"`
	Subdirectory  string `env:"RUNTIME_SUBDIRECTORY"`
	AppDirectory  string `env:"RUNTIME_APPDIRECTORY" envDefault:"config"`
	IgnoreDots    bool   `env:"RUNTIME_IGNOREDOTFILES"`
	WatchRoot     bool   `env:"RUNTIME_WATCH_ROOT" envDefault:"true"`
	Merge         bool   `env:"MERGE_DOMAIN_CONFIG"` // several files may hold one domain
	Type          string `env:"CONFIG_TYPE" envDefault:"FILE"`
	StartWithout  bool   `env:"FORCE_START_WITHOUT_INITIAL_CONFIG"` // always done
	DefaultDomain string `env:"DEFAULT_DOMAIN"`                     // of requests that name none; for ext_authz
}

// Redis is where a shared store is: one server, or several that stand together as Type says.
type Redis struct {
	// URL is host:port, redis://, rediss://, a socket's path or unix://. For a cluster it is a list of some nodes, for a ring
	// one of every shard, for sentinels the master's name and then a list of them; with commas in between. What one entry
	// says of user, password, TLS or database holds for all, and a user and password in a sentinel's are the sentinels'.
	URL        string `env:"URL"`
	SocketType string `env:"SOCKET_TYPE"`
	Type       string `env:"TYPE" envDefault:"SINGLE"` // single, sentinel, cluster or ring, in any case

	Auth             string `env:"AUTH"`               // password, or user:password; goes before what URL says
	AuthFile         string `env:"AUTH_FILE"`          // the same from a file, which is read for each new connection
	SentinelAuth     string `env:"SENTINEL_AUTH"`      // for the sentinels alone
	SentinelAuthFile string `env:"SENTINEL_AUTH_FILE"` // the same from a file, which is read at start

	PoolSize int           `env:"POOL_SIZE"` // connections to each server; 0: the store's own choice
	Timeout  time.Duration `env:"TIMEOUT"`   // of dialling; 0: the store's own choice. STORE_BUDGET bounds a decision
	TLS      bool          `env:"TLS"`
}

// RedisTLS is how to speak TLS to Redis, for all of its servers.
type RedisTLS struct {
	Cert       string `env:"REDIS_TLS_CLIENT_CERT"` // file
	Key        string `env:"REDIS_TLS_CLIENT_KEY"`  // file
	CA         string `env:"REDIS_TLS_CACERT"`      // file
	SkipVerify bool   `env:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"`
}

// Store is how counts are kept, wherever that is.
type Store struct {
	Backend     string        `env:"BACKEND_TYPE" envDefault:"redis"`
	PerSecond   bool          `env:"REDIS_PERSECOND"`                       // limits by the second have a Redis of their own
	Budget      time.Duration `env:"STORE_BUDGET" envDefault:"10ms"`        // the longest a decision waits for the shared store
	KeyPrefix   string        `env:"CACHE_KEY_PREFIX"`                      //
	KeySecret   string        `env:"KEY_SECRET"`                            // with it, keys hold no identities
	SecretFile  string        `env:"KEY_SECRET_FILE"`                       // KEY_SECRET from a file
	MaxKeys     int           `env:"MEMORY_MAX_KEYS" envDefault:"1000000"`  // counters kept in memory
	DenialCache int           `env:"DENIAL_CACHE_SIZE" envDefault:"100000"` // spent counters remembered in front of Redis; 0: none
	Waiters     int           `env:"THROTTLE_WAITERS" envDefault:"10000"`   // throttled answers held at once
}

// Answer is what clients see.
type Answer struct {
	Headers         bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED"`
	LimitHeader     string `env:"LIMIT_LIMIT_HEADER" envDefault:"RateLimit-Limit"`
	RemainingHeader string `env:"LIMIT_REMAINING_HEADER" envDefault:"RateLimit-Remaining"`
	ResetHeader     string `env:"LIMIT_RESET_HEADER" envDefault:"RateLimit-Reset"`
	Metadata        bool   `env:"RESPONSE_DYNAMIC_METADATA"`
	Shadow          bool   `env:"SHADOW_MODE"` // count, refuse nothing
	Quota           bool   `env:"QUOTA_MODE"`  // every descriptor is in quota mode
}
