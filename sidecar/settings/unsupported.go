package settings

const (
	noMemcache = "memcached is not supported; set REDIS_URL"
	noStartup  = "the sidecar serves at once and connects to Redis when it can"
	noPipeline = "a decision asks each server once, so there is nothing to gather"
	noSerial   = "the servers that a request needs are always asked at the same time"
	noEmpty    = "calls share a few connections, so none waits for a free one"
)

// unsupported are the variables that the reference server reads and that are ignored here: why, and what to do
// instead.
var unsupported = map[string]string{
	"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL and the variables " +
		"beside it hold for every attempt to connect",

	"USE_DOG_STATSD_MOGRIFIERS": "statistics have the names of the reference server; rename them where they " +
		"arrive",
	"PROMETHEUS_MAPPER_YAML": "metrics have the names of the reference server's own mapping; rename them where " +
		"they are scraped",
	"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS": "response times are in seconds",

	"EXPIRATION_JITTER_MAX_SECONDS": "keys expire when their limit is full again",
	"LOCAL_CACHE_SIZE_IN_BYTES":     "refusals are always remembered; DENIAL_CACHE_SIZE sets how many",
	"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "set RULES_REQUIRED=true instead: health is then good from the " +
		"first good set of rules on",
	"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": "a lost Redis does not fail health; /readyz names it",

	"REDIS_PIPELINE_WINDOW":              noPipeline,
	"REDIS_PIPELINE_LIMIT":               noPipeline,
	"REDIS_CLUSTER_PIPELINE_PARALLELISM": noSerial,
	"REDIS_POOL_ON_EMPTY_BEHAVIOR":       noEmpty,
	"REDIS_POOL_ON_EMPTY_WAIT_DURATION":  noEmpty,
	"REDIS_STARTUP_INITIAL_INTERVAL":     noStartup,
	"REDIS_STARTUP_MAX_INTERVAL":         noStartup,
	"REDIS_STARTUP_MAX_ELAPSED_TIME":     noStartup,

	"REDIS_PERSECOND_PIPELINE_WINDOW":              noPipeline,
	"REDIS_PERSECOND_PIPELINE_LIMIT":               noPipeline,
	"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM": noSerial,
	"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR":       noEmpty,
	"REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION":  noEmpty,

	"MEMCACHE_HOST_PORT":                      noMemcache,
	"MEMCACHE_SRV":                            noMemcache,
	"MEMCACHE_SRV_REFRESH":                    noMemcache,
	"MEMCACHE_MAX_IDLE_CONNS":                 noMemcache,
	"MEMCACHE_TLS":                            noMemcache,
	"MEMCACHE_TLS_CLIENT_CERT":                noMemcache,
	"MEMCACHE_TLS_CLIENT_KEY":                 noMemcache,
	"MEMCACHE_TLS_CACERT":                     noMemcache,
	"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION": noMemcache,
}
