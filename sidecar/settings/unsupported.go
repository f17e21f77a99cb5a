package settings

// ignored is why a variable of the reference server has no effect here, and what to do instead.
type ignored struct {
	why   string
	inert string // the value that turns nothing on and so needs no warning
}

const (
	noMemcache = "memcached is not supported; set REDIS_URL"
	noStartup  = "the sidecar serves at once and connects to Redis when it can"
	noPipeline = "a decision asks each server once, so there is nothing to gather"
	noSerial   = "the servers that a request needs are always asked at the same time"
	noEmpty    = "calls share a few connections, so none waits for a free one"
)

// unsupported are the variables that the reference server reads and that have no effect here.
var unsupported = map[string]ignored{
	"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": {why: "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL and the variables " +
		"beside it hold for every attempt to connect", inert: "3s"},

	"USE_DOG_STATSD_MOGRIFIERS": {why: "statistics have the names of the reference server; rename them where they " +
		"arrive"},
	"PROMETHEUS_MAPPER_YAML": {why: "metrics have the names of the reference server's own mapping; rename them where " +
		"they are scraped"},
	"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS": {why: "response times are in seconds", inert: "false"},

	"EXPIRATION_JITTER_MAX_SECONDS": {why: "keys expire when their limit is full again", inert: "0"},
	"LOCAL_CACHE_SIZE_IN_BYTES": {why: "refusals are always remembered; DENIAL_CACHE_SIZE sets how many",
		inert: "0"},
	"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": {why: "set RULES_REQUIRED=true instead: health is then good from the " +
		"first good set of rules on", inert: "false"},
	"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": {why: "a lost Redis does not fail health; /readyz names it",
		inert: "false"},

	"REDIS_PIPELINE_WINDOW":              {why: noPipeline, inert: "0"},
	"REDIS_PIPELINE_LIMIT":               {why: noPipeline, inert: "0"},
	"REDIS_CLUSTER_PIPELINE_PARALLELISM": {why: noSerial, inert: "0"},
	"REDIS_POOL_ON_EMPTY_BEHAVIOR":       {why: noEmpty, inert: "WAIT"},
	"REDIS_POOL_ON_EMPTY_WAIT_DURATION":  {why: noEmpty},
	"REDIS_STARTUP_INITIAL_INTERVAL":     {why: noStartup},
	"REDIS_STARTUP_MAX_INTERVAL":         {why: noStartup},
	"REDIS_STARTUP_MAX_ELAPSED_TIME":     {why: noStartup},

	"REDIS_PERSECOND_PIPELINE_WINDOW":              {why: noPipeline, inert: "0"},
	"REDIS_PERSECOND_PIPELINE_LIMIT":               {why: noPipeline, inert: "0"},
	"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM": {why: noSerial, inert: "0"},
	"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR":       {why: noEmpty, inert: "WAIT"},
	"REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION":  {why: noEmpty},

	"MEMCACHE_HOST_PORT":                      {why: noMemcache},
	"MEMCACHE_SRV":                            {why: noMemcache},
	"MEMCACHE_SRV_REFRESH":                    {why: noMemcache, inert: "0"},
	"MEMCACHE_MAX_IDLE_CONNS":                 {why: noMemcache},
	"MEMCACHE_TLS":                            {why: noMemcache, inert: "false"},
	"MEMCACHE_TLS_CLIENT_CERT":                {why: noMemcache},
	"MEMCACHE_TLS_CLIENT_KEY":                 {why: noMemcache},
	"MEMCACHE_TLS_CACERT":                     {why: noMemcache},
	"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION": {why: noMemcache, inert: "false"},
}
