package settings

import (
	"io"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"
)

// Config is all settings of a sidecar. FromEnvironment fills it. The tags hold the names of the variables and their defaults, and
// the comments of the fields are the text of docs/reference/environment.md. A variable that is set but empty counts as not set.
type Config struct {
	Listen    Listen
	TLS       TLS
	Log       Log
	Tracing   Tracing
	Rules     Rules
	XDS       XDS
	Redis     Redis `envPrefix:"REDIS_"`           // without a URL there is none, and each sidecar counts alone in memory
	PerSecond Redis `envPrefix:"REDIS_PERSECOND_"` // for limits with a window of at most a second, with REDIS_PERSECOND
	RedisTLS  RedisTLS
	Store     Store
	Breaker   Breaker `envPrefix:"BREAKER_"`
	Answer    Answer
	Metrics   Metrics
	Memory    Memory
	Admin     Admin
	Record    Record

	Version  string    `env:"-"` // of this program
	Warnings []string  `env:"-"` // variables that are set and have no effect, or not all of it; logged at start
	Output   io.Writer `env:"-"` // takes the log; nil: standard output
}

// Listen is where the sidecar listens. Ports may be 0, which picks a free one. An empty host is loopback, or every
// interface where the program was started under the name `ratelimit`.
type Listen struct {
	Host      string `env:"HOST"`                         // address of /json and the probes
	Port      uint16 `env:"PORT" envDefault:"8080"`       // port of /json and the probes
	GRPCHost  string `env:"GRPC_HOST"`                    // address of the rate limit service, ext_authz and gRPC health
	GRPCPort  uint16 `env:"GRPC_PORT" envDefault:"8081"`  // port of the rate limit service, ext_authz and gRPC health
	DebugHost string `env:"DEBUG_HOST"`                   // address of /metrics, /stats, /rlconfig and profiles
	DebugPort uint16 `env:"DEBUG_PORT" envDefault:"6070"` // port of /metrics, /stats, /rlconfig and profiles

	// UDS is a Unix socket beside the TCP port: a path of at most 107 bytes, or @name for an abstract one.
	UDS string `env:"GRPC_UDS"`
	// UDSMode is the mode of the socket. By default every process that can enter its folder can connect, because Envoy often runs
	// under another user, and lets all requests pass if it cannot connect. 0660 with a shared group is stricter.
	UDSMode SocketMode `env:"GRPC_UDS_MODE" envDefault:"0666"`

	// MaxMessage is the longest request in bytes, over gRPC and /json. A longer one is refused with a decision.
	MaxMessage int `env:"MAX_MESSAGE_BYTES" envDefault:"1048576"`

	MaxAge      time.Duration `env:"GRPC_MAX_CONNECTION_AGE" envDefault:"24h"`      // age of a connection at which its client has to reconnect; 0: none
	MaxAgeGrace time.Duration `env:"GRPC_MAX_CONNECTION_AGE_GRACE" envDefault:"1h"` // time from that age until the connection is closed; 0: for ever
	Reflection  bool          `env:"GRPC_REFLECTION"`                               // lets tools list the gRPC services
	DrainDelay  time.Duration `env:"DRAIN_DELAY" envDefault:"0s"`                   // time from failing health to refusing calls, after SIGTERM; use 0 where Envoy has only this endpoint
}

// Addresses are host and port of each TCP listener.
func (l *Listen) Addresses() (http, grpc, debug string) {
	address := func(host string, port uint16) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
	return address(l.Host, l.Port), address(l.GRPCHost, l.GRPCPort), address(l.DebugHost, l.DebugPort)
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
	Use      bool   `env:"GRPC_SERVER_USE_TLS"`     // TLS on the gRPC port and socket
	Cert     string `env:"GRPC_SERVER_TLS_CERT"`    // file of the certificate
	Key      string `env:"GRPC_SERVER_TLS_KEY"`     // file of its key
	ClientCA string `env:"GRPC_CLIENT_TLS_CACERT"`  // file of authorities; with it clients need a certificate that one of them signed
	CAAlias  string `env:"GRPC_SERVER_TLS_CA_CERT"` // Envoy Gateway's name for GRPC_CLIENT_TLS_CACERT
	SAN      string `env:"GRPC_CLIENT_TLS_SAN"`     // DNS names or URIs, with commas in between; a client's certificate must hold one of them
}

// Names are the entries of GRPC_CLIENT_TLS_SAN. A client's certificate must hold one of them; without entries every certificate is accepted.
func (t TLS) Names() []string {
	var names []string
	for name := range strings.SplitSeq(t.SAN, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Log is what the log looks like.
type Log struct {
	Level  string `env:"LOG_LEVEL" envDefault:"info"`  // error, warn, info, debug or trace
	Format string `env:"LOG_FORMAT" envDefault:"text"` // text or json

	Decisions     string  `env:"LOG_DECISIONS" envDefault:"off"`    // which decisions have a line, at level info: off, refused (or would be, in shadow mode) or all
	DecisionsRate float64 `env:"LOG_DECISIONS_RATE" envDefault:"1"` // share of them, 0 to 1; never more than 100 lines a second
}

// Rules is where the rules are.
type Rules struct {
	Path          string `env:"RULES"`                                               // a file, or a folder of .yaml and .yml files; wins over RUNTIME_ROOT. redis: takes the rules that the control plane publishes in Redis; redis:,PATH lays them over those of a file or folder, by name
	Root          string `env:"RUNTIME_ROOT" envDefault:"/srv/runtime_data/current"` // folder above the rules, without RULES
	Subdirectory  string `env:"RUNTIME_SUBDIRECTORY"`                                // folder in RUNTIME_ROOT
	AppDirectory  string `env:"RUNTIME_APPDIRECTORY" envDefault:"config"`            // folder of the rules below that
	IgnoreDots    bool   `env:"RUNTIME_IGNOREDOTFILES"`                              // skips files and folders whose names begin with a dot
	WatchRoot     bool   `env:"RUNTIME_WATCH_ROOT" envDefault:"true"`                // without effect: swapped links and changed files are always both noticed
	Merge         bool   `env:"MERGE_DOMAIN_CONFIG"`                                 // several files may hold one domain
	Type          string `env:"CONFIG_TYPE" envDefault:"FILE"`                       // where rules come from: FILE, or GRPC_XDS_SOTW for a management server; beside that RULES may add domains, and RUNTIME_ROOT is not read
	StartWithout  bool   `env:"FORCE_START_WITHOUT_INITIAL_CONFIG"`                  // always done: the sidecar serves without rules until there are some
	Required      bool   `env:"RULES_REQUIRED"`                                      // not ready before the first good set of rules: until then /readyz, /healthcheck and gRPC health fail, so a bad set does not roll out
	SpareDenied   bool   `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"`             // charge_denied: false for domains that do not set it: a refused request is not charged at all
	DefaultDomain string `env:"DEFAULT_DOMAIN"`                                      // domain of ext_authz requests that name no domain
}

// Redis is where a shared store is: one server, or several servers of one type.
type Redis struct {
	// URL is host:port, redis://, rediss://, a socket's path or unix://. For a cluster it is a list of some nodes, for a ring
	// a list of every shard, for sentinels the master's name and then a list of them; with commas in between. User, password, TLS and
	// database of one entry hold for all entries. A user and password in a sentinel's entry are for the sentinels.
	URL        string `env:"URL"`
	SocketType string `env:"SOCKET_TYPE"`              // tcp or unix; unset: as the URL is written
	Type       string `env:"TYPE" envDefault:"SINGLE"` // single, sentinel, cluster or ring, in any case

	Auth             string `env:"AUTH"`               // password, or user:password; goes before the login in the URL
	AuthFile         string `env:"AUTH_FILE"`          // the same from a file, which is read for each new connection
	SentinelAuth     string `env:"SENTINEL_AUTH"`      // password, or user:password, for the sentinels alone
	SentinelAuthFile string `env:"SENTINEL_AUTH_FILE"` // the same from a file, which is read at start

	PoolSize int           `env:"POOL_SIZE"` // connections for decisions to each server at most; unset: 8, and never fewer; two of them are in use at once
	Timeout  time.Duration `env:"TIMEOUT"`   // for dialling; unset: 500ms. STORE_PATIENCE bounds a decision
	TLS      bool          `env:"TLS"`       // uses TLS, as rediss:// does
}

// RedisTLS is how the sidecar uses TLS to Redis, for all of its servers. The files are read again when they change, for new connections.
type RedisTLS struct {
	Cert       string `env:"REDIS_TLS_CLIENT_CERT"`                // file of the sidecar's certificate
	Key        string `env:"REDIS_TLS_CLIENT_KEY"`                 // file of its key
	CA         string `env:"REDIS_TLS_CACERT"`                     // file of authorities; unset: those of the system
	SkipVerify bool   `env:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"` // checks the chain of the server's certificate, but not the name in it
}

// Store is how counts are kept, in Redis and in memory.
type Store struct {
	Backend     string        `env:"BACKEND_TYPE" envDefault:"redis"`       // redis; memcache is not supported
	PerSecond   bool          `env:"REDIS_PERSECOND"`                       // limits with a window of at most a second have a Redis of their own
	Patience    time.Duration `env:"STORE_PATIENCE" envDefault:"100ms"`     // the longest a decision waits for Redis, also at most 80 % of what its caller's deadline leaves; then the failure policies of the rules decide
	Silence     time.Duration `env:"STORE_SILENCE" envDefault:"250ms"`      // the longest a call to a Redis server waits for its reply; then it has failed
	KeyPrefix   string        `env:"CACHE_KEY_PREFIX"`                      // begins every key in the shared store
	KeySecret   string        `env:"KEY_SECRET"`                            // with it, keys in the shared store hold HMACs in place of identities
	SecretFile  string        `env:"KEY_SECRET_FILE"`                       // KEY_SECRET from a file
	MaxKeys     int           `env:"MEMORY_MAX_KEYS" envDefault:"1000000"`  // counters kept in memory at most; they also take at most a fifth of the memory limit
	DenialCache int           `env:"DENIAL_CACHE_SIZE" envDefault:"100000"` // spent counters remembered in front of Redis; 0: none. They also take at most a sixteenth of the memory limit
	Leases      bool          `env:"LEASES" envDefault:"true"`              // tokens of counters that are asked often are leased from Redis and spent without asking it; a rule may turn it off (lease: false)
	Waiters     int           `env:"THROTTLE_WAITERS" envDefault:"10000"`   // throttled answers held at once; further ones are refused
}

// Breaker is when calls to a server of the shared store stop because it is down, and when they begin again. Each server has a
// breaker of its own.
type Breaker struct {
	Failures int           `env:"FAILURES" envDefault:"3"` // failed calls in a row that open it: refused or lost connections, no reply, replies by which the server reports that it cannot work. Two failed calls that were under way at once open it, too
	Open     time.Duration `env:"OPEN" envDefault:"500ms"` // time from opening to the next try
	Probes   int           `env:"PROBES" envDefault:"1"`   // calls that may try the server after that, and successes that close it
}

// Answer is what clients see.
type Answer struct {
	Headers         bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED"`                          // adds the three headers below to answers of the rate limit service
	LimitHeader     string `env:"LIMIT_LIMIT_HEADER" envDefault:"RateLimit-Limit"`         // name of the header with the limit
	RemainingHeader string `env:"LIMIT_REMAINING_HEADER" envDefault:"RateLimit-Remaining"` // name of the header with what is left
	ResetHeader     string `env:"LIMIT_RESET_HEADER" envDefault:"RateLimit-Reset"`         // name of the header with the seconds until the limit is reset
	Metadata        bool   `env:"RESPONSE_DYNAMIC_METADATA"`                               // adds dynamic metadata to answers of the rate limit service
	Style           string `env:"RESPONSE_STYLE" envDefault:"spillway"`                    // of refusals over the rate limit service: spillway, or reference for those without retry-after and problem document; a rule's own response stays
	Shadow          bool   `env:"SHADOW_MODE"`                                             // counts, and refuses nothing
	Quota           bool   `env:"QUOTA_MODE"`                                              // puts every descriptor into quota mode
}

// Memory is when garbage is collected. The Go runtime reads both variables itself. The sidecar sets those that are unset when it
// begins to serve. Without any limit the heap takes up to five times the memory in use: set GOGC=100 where that is too much.
type Memory struct {
	Growth string `env:"GOGC"`       // growth of the heap, in percent of the memory in use, at which garbage is collected, or off; unset: 400
	Limit  string `env:"GOMEMLIMIT"` // size of the process, such as 400MiB, near which it is collected more often; unset: eleven sixteenths of the limit of the cgroup, if there is one
}
