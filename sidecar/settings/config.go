package settings

import (
	"io"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"
)

// Config is all settings of a sidecar. FromEnvironment fills it. The tags hold the names of the variables and their
// defaults, and the comments of the fields are the text of docs/reference/environment.md. A variable that is set but
// empty counts as not set.
type Config struct {
	Listen  Listen
	TLS     TLS
	Log     Log
	Tracing Tracing
	Rules   Rules
	XDS     XDS
	// without a URL each sidecar counts alone in memory
	Redis     Redis `envPrefix:"REDIS_"`
	PerSecond Redis `envPrefix:"REDIS_PERSECOND_"` // for limits with a window of at most a second, with REDIS_PERSECOND
	RedisTLS  RedisTLS
	Store     Store
	Breaker   Breaker `envPrefix:"BREAKER_"`
	Answer    Answer
	Metrics   Metrics
	OTLP      OTLP
	Memory    Memory
	Admin     Admin
	Record    Record

	Version  string    `env:"-"` // of this program
	Warnings []string  `env:"-"` // variables that are set without effect, or without all of it; logged at start
	Output   io.Writer `env:"-"` // takes the log; nil: standard output
}

// Listen is where the sidecar listens. Ports may be 0, which picks a free one. An empty host is loopback, or every
// interface where the program was started under the name `ratelimit`.
type Listen struct {
	Host string `env:"HOST"`                   // address of /json and the probes
	Port uint16 `env:"PORT" envDefault:"8080"` // port of /json and the probes
	// address of the rate limit service, ext_authz and gRPC health
	GRPCHost  string `env:"GRPC_HOST"`
	GRPCPort  uint16 `env:"GRPC_PORT" envDefault:"8081"`  // port of the rate limit service, ext_authz and gRPC health
	DebugHost string `env:"DEBUG_HOST"`                   // address of /metrics, /stats, /rlconfig and profiles
	DebugPort uint16 `env:"DEBUG_PORT" envDefault:"6070"` // port of /metrics, /stats, /rlconfig and profiles

	// UDS is a Unix socket beside the TCP port: a path of at most 107 bytes, or @name for an abstract one.
	UDS string `env:"GRPC_UDS"`
	// UDSMode is the mode of the socket. By default every process that can enter its folder can connect, because Envoy
	// often runs under another user, and lets all requests pass if it cannot connect. 0660 with a shared group is
	// stricter.
	UDSMode SocketMode `env:"GRPC_UDS_MODE" envDefault:"0666"`

	// MaxMessage is the longest request in bytes, over gRPC and /json. A longer one is refused with a decision.
	MaxMessage int `env:"MAX_MESSAGE_BYTES" envDefault:"1048576" in:"16384..4194304"`

	// age of a connection at which its client has to reconnect; 0: none
	MaxAge time.Duration `env:"GRPC_MAX_CONNECTION_AGE" envDefault:"24h" in:"0s.."`
	// time from that age until the connection is closed; 0: for ever
	MaxAgeGrace time.Duration `env:"GRPC_MAX_CONNECTION_AGE_GRACE" envDefault:"1h" in:"0s.."`
	// lets tools list the gRPC services
	Reflection bool `env:"GRPC_REFLECTION"`
	// time from failing health to refusing calls, after SIGTERM; use 0 where Envoy has only this endpoint
	DrainDelay time.Duration `env:"DRAIN_DELAY" envDefault:"0s" in:"0s..1h"`
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
	Use  bool   `env:"GRPC_SERVER_USE_TLS"`  // TLS on the gRPC port and socket
	Cert string `env:"GRPC_SERVER_TLS_CERT"` // file of the certificate
	Key  string `env:"GRPC_SERVER_TLS_KEY"`  // file of its key
	// file of authorities; with it clients need a certificate that one of them signed
	ClientCA string `env:"GRPC_CLIENT_TLS_CACERT"`
	CAAlias  string `env:"GRPC_SERVER_TLS_CA_CERT"` // Envoy Gateway's name for GRPC_CLIENT_TLS_CACERT
	// DNS names or URIs, with commas in between; a client's certificate must hold one of them
	SAN string `env:"GRPC_CLIENT_TLS_SAN"`
}

// Names are the entries of GRPC_CLIENT_TLS_SAN. A client's certificate must hold one of them; without entries every
// certificate is accepted.
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
	Level  string `env:"LOG_LEVEL" envDefault:"info"`                 // error, warn, info, debug or trace
	Format string `env:"LOG_FORMAT" envDefault:"text" in:"text|json"` // text or json

	// which decisions have a line, at level info: off, refused (or would be, in shadow mode) or all
	Decisions string `env:"LOG_DECISIONS" envDefault:"off" in:"off|refused|all"`
	// share of them, 0 to 1; never more than 100 lines a second
	DecisionsRate float64 `env:"LOG_DECISIONS_RATE" envDefault:"1" in:"0..1"`
}

// Rules is where the rules are.
type Rules struct {
	// a file, or a folder of .yaml and .yml files; wins over RUNTIME_ROOT. redis: takes the rules that the control
	// plane publishes in Redis; redis:,PATH lays them over those of a file or folder, by name
	Path string `env:"RULES"`
	// name of this sidecar, which chooses whether it uses a canary of published rules; unset: that of the host
	Sidecar string `env:"SIDECAR_NAME"`
	// folder above the rules, without RULES
	Root         string `env:"RUNTIME_ROOT" envDefault:"/srv/runtime_data/current"`
	Subdirectory string `env:"RUNTIME_SUBDIRECTORY"`                     // folder in RUNTIME_ROOT
	AppDirectory string `env:"RUNTIME_APPDIRECTORY" envDefault:"config"` // folder of the rules below that
	// skips files and folders whose names begin with a dot
	IgnoreDots bool `env:"RUNTIME_IGNOREDOTFILES"`
	// without effect: swapped links and changed files are always both noticed
	WatchRoot bool `env:"RUNTIME_WATCH_ROOT" envDefault:"true"`
	// several files may hold one domain
	Merge bool `env:"MERGE_DOMAIN_CONFIG"`
	// where rules come from: FILE, or GRPC_XDS_SOTW for a management server; beside that RULES may add domains, and
	// RUNTIME_ROOT is not read
	Type string `env:"CONFIG_TYPE" envDefault:"FILE"`
	// always done: the sidecar serves without rules until there are some
	StartWithout bool `env:"FORCE_START_WITHOUT_INITIAL_CONFIG"`
	// not ready before the first good set of rules: until then /readyz, /healthcheck and gRPC health fail, so a bad set
	// does not roll out
	Required bool `env:"RULES_REQUIRED"`
	// charge_denied: false for domains that do not set it: a refused request is not charged at all
	SpareDenied bool `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"`
	// domain of ext_authz requests that name no domain
	DefaultDomain string `env:"DEFAULT_DOMAIN"`
}

// Redis is where a shared store is: one server, or several servers of one type.
type Redis struct {
	// URL is host:port, redis://, rediss://, a socket's path or unix://. For a cluster it is a list of some nodes, for
	// a ring a list of every shard, for sentinels the master's name and then a list of them; with commas in between.
	// User, password, TLS and database of one entry hold for all entries. A user and password in a sentinel's entry are
	// for the sentinels.
	URL string `env:"URL"`
	// tcp or unix; unset: as the URL is written
	SocketType string `env:"SOCKET_TYPE" in:"|tcp|unix"`
	// single, sentinel, cluster or ring, in any case
	Type string `env:"TYPE" envDefault:"SINGLE" in:"single|sentinel|cluster|ring"`

	Auth             string `env:"AUTH"`               // password, or user:password; goes before the login in the URL
	AuthFile         string `env:"AUTH_FILE"`          // the same from a file, which is read for each new connection
	SentinelAuth     string `env:"SENTINEL_AUTH"`      // password, or user:password, for the sentinels alone
	SentinelAuthFile string `env:"SENTINEL_AUTH_FILE"` // the same from a file, which is read at start

	// connections for decisions to each server at most; unset: 8, and never fewer; two of them are in use at once
	PoolSize int `env:"POOL_SIZE" in:"0..10000"`
	// usage: what is left on a counter is read from a replica of a cluster or of what sentinels watch, when a person
	// asks; decisions never are. The answer is a little old
	ReplicaReads string `env:"REPLICA_READS" in:"|none|usage"`
	// for dialling; unset: 500ms. STORE_PATIENCE bounds a decision
	Timeout time.Duration `env:"TIMEOUT" in:"0s.."`
	TLS     bool          `env:"TLS"` // uses TLS, as rediss:// does
}

// RedisTLS is how the sidecar uses TLS to Redis, for all of its servers. The files are read again when they change, for
// new connections.
type RedisTLS struct {
	Cert string `env:"REDIS_TLS_CLIENT_CERT"` // file of the sidecar's certificate
	Key  string `env:"REDIS_TLS_CLIENT_KEY"`  // file of its key
	CA   string `env:"REDIS_TLS_CACERT"`      // file of authorities; unset: those of the system
	// checks the chain of the server's certificate, but not the name in it
	SkipVerify bool `env:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"`
}

// Store is how counts are kept, in Redis and in memory.
type Store struct {
	Backend string `env:"BACKEND_TYPE" envDefault:"redis"` // redis; memcache is not supported
	// limits with a window of at most a second have a Redis of their own
	PerSecond bool `env:"REDIS_PERSECOND"`
	// the longest a decision waits for Redis, also at most 80 % of what its caller's deadline leaves; then the failure
	// policies of the rules decide
	Patience time.Duration `env:"STORE_PATIENCE" envDefault:"100ms" in:"1ms..1m"`
	// the longest a call to a Redis server waits for its reply; then it has failed
	Silence time.Duration `env:"STORE_SILENCE" envDefault:"250ms" in:"50ms..1m"`
	// begins every key in the shared store
	KeyPrefix string `env:"CACHE_KEY_PREFIX"`
	// with it, keys in the shared store hold HMACs in place of identities
	KeySecret  string `env:"KEY_SECRET"`
	SecretFile string `env:"KEY_SECRET_FILE"` // KEY_SECRET from a file
	// counters kept in memory at most; they also take at most a fifth of the memory limit
	MaxKeys int `env:"MEMORY_MAX_KEYS" envDefault:"1000000" in:"1.."`
	// spent counters remembered in front of Redis; 0: none. They also take at most a sixteenth of the memory limit
	DenialCache int `env:"DENIAL_CACHE_SIZE" envDefault:"100000" in:"0.."`
	// tokens of counters that are asked often are leased from Redis and spent without asking it; a rule may turn it off
	// (lease: false)
	Leases bool `env:"LEASES" envDefault:"true"`
	// throttled answers held at once; further ones are refused
	Waiters int `env:"THROTTLE_WAITERS" envDefault:"10000" in:"1.."`
}

// Breaker is when calls to a server of the shared store stop because it is down, and when they begin again. Each server
// has a breaker of its own.
type Breaker struct {
	// failed calls in a row that open it: refused or lost connections, no reply, replies by which the server reports
	// that it cannot work. Two failed calls that were under way at once open it, too
	Failures int           `env:"FAILURES" envDefault:"3" in:"1..1000000"`
	Open     time.Duration `env:"OPEN" envDefault:"500ms" in:"10ms..1h"` // time from opening to the next try
	// calls that may try the server after that, and successes that close it
	Probes int `env:"PROBES" envDefault:"1" in:"1..1000000"`
}

// Answer is what clients see.
type Answer struct {
	// adds the three headers below to answers of the rate limit service
	Headers bool `env:"LIMIT_RESPONSE_HEADERS_ENABLED"`
	// name of the header with the limit
	LimitHeader string `env:"LIMIT_LIMIT_HEADER" envDefault:"RateLimit-Limit"`
	// name of the header with what is left
	RemainingHeader string `env:"LIMIT_REMAINING_HEADER" envDefault:"RateLimit-Remaining"`
	// name of the header with the seconds until the limit is reset
	ResetHeader string `env:"LIMIT_RESET_HEADER" envDefault:"RateLimit-Reset"`
	// adds dynamic metadata to answers of the rate limit service
	Metadata bool `env:"RESPONSE_DYNAMIC_METADATA"`
	// of refusals over the rate limit service: spillway, or reference for those without retry-after and problem
	// document; a rule's own response stays
	Style string `env:"RESPONSE_STYLE" envDefault:"spillway" in:"spillway|reference"`
	// counts, and refuses nothing
	Shadow bool `env:"SHADOW_MODE"`
	// puts every descriptor into quota mode
	Quota bool `env:"QUOTA_MODE"`
}

// Memory is when garbage is collected. The Go runtime reads both variables itself. The sidecar sets those that are
// unset when it begins to serve. Without any limit the heap takes up to five times the memory in use: set GOGC=100
// where that is too much.
type Memory struct {
	// growth of the heap, in percent of the memory in use, at which garbage is collected, or off; unset: 400
	Growth string `env:"GOGC"`
	// size of the process, such as 400MiB, near which it is collected more often; unset: eleven sixteenths of the limit
	// of the cgroup, if there is one
	Limit string `env:"GOMEMLIMIT"`
}
