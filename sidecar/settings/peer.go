package settings

import (
	"cmp"
	"slices"
	"strings"
)

// Verdict is what a variable of the reference server does here, in short.
type Verdict string

// The verdicts.
const (
	Same    Verdict = "same"    // it is read and means the same
	Better  Verdict = "better"  // it is read; what differs is for the better
	NotYet  Verdict = "not yet" // announced at start, if it is set
	Ignored Verdict = "ignored" // announced at start, if it is set
)

// PeerVariable is a variable of the reference server.
type PeerVariable struct {
	Name    string
	Verdict Verdict
	Note    string // what differs, or why it is not read and what to do instead
}

// PeerVariables are all variables of the reference server, sorted by name.
func PeerVariables() []PeerVariable {
	var all []PeerVariable
	for _, name := range strings.Fields(peerNames) {
		note, verdict := noteOf(name), Same
		switch {
		case unsupported[name] != "":
			note, verdict = unsupported[name], Ignored
		case note != "" && !strings.HasPrefix(note, sameWith):
			verdict = Better
		}
		if strings.Contains(note, "not supported yet") {
			verdict = NotYet
		}
		all = append(all, PeerVariable{name, verdict, note})
	}
	slices.SortFunc(all, func(a, b PeerVariable) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// noteOf returns what differs in a variable. The variables of the second Redis differ as those of the first do.
func noteOf(name string) string {
	const first, second = "REDIS_", "REDIS_PERSECOND_"
	if note, own := differs[name]; own || !strings.HasPrefix(name, second) {
		return note
	}
	return strings.ReplaceAll(differs[strings.Replace(name, second, first, 1)], "`"+first, "`"+second)
}

const (
	sameWith  = "the same with " // begins a note that only names the values that are missing here
	openHost  = "the default is loopback; every interface only where the program is called `ratelimit`"
	againXDS  = "read again for each connection"
	anyFolder = "certificate and key may lie in different folders; read again when they change"
)

// differs holds, for variables that are read, what differs from the reference server.
var differs = map[string]string{
	"HOST": openHost, "GRPC_HOST": openHost, "DEBUG_HOST": openHost,
	"GRPC_UDS": "a socket beside the port, not in place of it; `GRPC_UDS_MODE` are its " +
		"permissions",
	"GRPC_SERVER_TLS_CERT":                anyFolder,
	"GRPC_SERVER_TLS_KEY":                 anyFolder,
	"GRPC_CLIENT_TLS_CACERT":              "read again when it changes",
	"GRPC_CLIENT_TLS_SAN":                 "may also be a URI, such as a SPIFFE id, and a list with commas",
	"LOG_LEVEL":                           "the default is info; changed at run time on the debug port",
	"CONFIG_TYPE":                         "beside GRPC_XDS_SOTW `RULES` may add domains",
	"CONFIG_GRPC_XDS_NODE_METADATA":       "an entry without `=` is an error",
	"CONFIG_GRPC_XDS_CLIENT_TLS_CERT":     againXDS,
	"CONFIG_GRPC_XDS_CLIENT_TLS_KEY":      againXDS,
	"CONFIG_GRPC_XDS_SERVER_TLS_CACERT":   againXDS + "; the authorities of the system are not added to it",
	"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "the default is 1s",
	"XDS_CLIENT_BACKOFF_MAX_INTERVAL":     "the default is 10s, and is reached",
	"XDS_CLIENT_BACKOFF_RANDOM_FACTOR":    "the default is 2, so that waits grow",
	"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES":    "the default is 16 MiB",
	"FORCE_START_WITHOUT_INITIAL_CONFIG": "always: it serves at once, and reads rules before the first answer if " +
		"they are there",
	"RUNTIME_WATCH_ROOT": "swapped links and changed files are both seen, with either value",
	"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "a domain's `charge_denied` goes before it; it reads and charges in " +
		"one step, and not first one and then the other",
	"USE_STATSD": "the default is false",
	"USE_PROMETHEUS": "the debug port has `/metrics` without it; numbers are up to date, and latency has buckets " +
		"from 50 µs",
	"PROMETHEUS_ADDR":   "no profiles there",
	"BACKEND_TYPE":      sameWith + "redis; memcache is not supported",
	"REDIS_SOCKET_TYPE": "follows from the URL unless set",
	"REDIS_TYPE":        "also `ring`",
	"REDIS_URL": "also `redis://`, `rediss://` and `unix://`; unset means that each sidecar counts in " +
		"memory",
	"REDIS_PERSECOND_URL":   "also `redis://`, `rediss://` and `unix://`; unset by default",
	"REDIS_POOL_SIZE":       "at least 8, and 8 unless set: a batch of decisions uses one connection",
	"REDIS_TLS_CLIENT_CERT": "read again when it changes, for new connections",
	"REDIS_TLS_CLIENT_KEY":  "read again when it changes, for new connections",
	"REDIS_TLS_CACERT":      "read again when it changes, for new connections",
	"REDIS_AUTH":            "also from a file that `…_AUTH_FILE` names, which is read for each new connection",
	"REDIS_SENTINEL_AUTH":   "also from a file that `…_AUTH_FILE` names",
	"REDIS_TIMEOUT":         "the default is 500ms, and `STORE_PATIENCE` bounds what a decision waits",
	"TRACING_ENABLED":       "OpenTelemetry's own variables turn traces on and off as well",
	"TRACING_SAMPLING_RATE": "OTEL_TRACES_SAMPLER goes before it",
}

// peerNames are the variables that the reference server reads, all of them.
const peerNames = `
HOST PORT DEBUG_HOST DEBUG_PORT GRPC_HOST GRPC_PORT GRPC_UDS GRPC_MAX_CONNECTION_AGE GRPC_MAX_CONNECTION_AGE_GRACE
GRPC_SERVER_USE_TLS GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN LOG_LEVEL
LOG_FORMAT CONFIG_TYPE FORCE_START_WITHOUT_INITIAL_CONFIG MERGE_DOMAIN_CONFIG CONFIG_GRPC_XDS_NODE_ID
CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_URL CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL
CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_GRPC_XDS_CLIENT_TLS_CERT
CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN
XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_MAX_INTERVAL XDS_CLIENT_BACKOFF_RANDOM_FACTOR
XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES USE_STATSD STATSD_HOST STATSD_PORT USE_DOG_STATSD
USE_DOG_STATSD_MOGRIFIERS USE_PROMETHEUS PROMETHEUS_ADDR PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML
PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS EXTRA_TAGS STATS_FLUSH_INTERVAL DISABLE_STATS RUNTIME_ROOT
RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT BACKEND_TYPE CACHE_KEY_PREFIX
EXPIRATION_JITTER_MAX_SECONDS LOCAL_CACHE_SIZE_IN_BYTES NEAR_LIMIT_RATIO STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT
LIMIT_RESPONSE_HEADERS_ENABLED LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER SHADOW_MODE QUOTA_MODE
RESPONSE_DYNAMIC_METADATA HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED REDIS_SOCKET_TYPE REDIS_PERSECOND_SOCKET_TYPE
REDIS_TYPE REDIS_PERSECOND_TYPE REDIS_URL REDIS_PERSECOND_URL REDIS_POOL_SIZE REDIS_PERSECOND_POOL_SIZE REDIS_AUTH
REDIS_PERSECOND_AUTH REDIS_SENTINEL_AUTH REDIS_PERSECOND_SENTINEL_AUTH REDIS_TLS REDIS_PERSECOND_TLS
REDIS_TLS_CLIENT_CERT REDIS_TLS_CLIENT_KEY REDIS_TLS_CACERT REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_PERSECOND
REDIS_PIPELINE_WINDOW REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_PERSECOND_PIPELINE_LIMIT
REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM REDIS_TIMEOUT
REDIS_PERSECOND_TIMEOUT REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR
REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_INTERVAL
REDIS_STARTUP_MAX_ELAPSED_TIME MEMCACHE_HOST_PORT MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_MAX_IDLE_CONNS
MEMCACHE_TLS MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT
MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION TRACING_ENABLED TRACING_EXPORTER_PROTOCOL TRACING_SERVICE_NAME
TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_SAMPLING_RATE
`
