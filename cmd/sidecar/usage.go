package main

// usage is what --help prints.
const usage = `Spillway is a rate-limiting sidecar for Envoy. Settings come from the environment.

Usage:
  sidecar               serve until SIGTERM; SIGHUP reads the rules again
  sidecar healthcheck   ask the sidecar at HOST:PORT whether it is ready: exit code 0 or 1;
                        healthcheck live asks whether the process answers at all
  sidecar --version     print the version
  sidecar --help        print this

Example:
  RULES=rules.yaml REDIS_URL=localhost:6379 sidecar

The variables that most need:
  RULES              a rule file, or a directory of .yaml and .yml files
                     (else RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY)
  REDIS_URL          host:port, redis://[user:password@]host:port[/db], rediss://…
                     or a socket's path; without it each sidecar counts alone
  STORE_PATIENCE     the longest a decision waits for Redis (100ms)
  STORE_SILENCE      the longest a call to Redis waits for its reply (250ms)
  KEY_SECRET         keeps identities out of Redis; also KEY_SECRET_FILE
  DEFAULT_DOMAIN     of ext_authz requests whose route names no domain
  SHADOW_MODE        true: count, refuse nothing
  LOG_LEVEL          error, warn, info (default), debug
  LOG_FORMAT         text (default) or json
  DRAIN_DELAY        from failing health to refusing calls after SIGTERM (0s)

Where it listens:
  GRPC_HOST:GRPC_PORT     127.0.0.1:8081   Envoy's RateLimitService and ext_authz, health
  GRPC_UDS                                 the same on a Unix socket, @name for an
                                           abstract one; its mode is GRPC_UDS_MODE (0666)
  HOST:PORT               127.0.0.1:8080   /json, /healthcheck, /livez, /readyz
  DEBUG_HOST:DEBUG_PORT   127.0.0.1:6070   /rlconfig, /stats, /metrics, /debug/pprof/,
                                           /rules.schema.json
  PROMETHEUS_ADDR         :9090            /metrics, with USE_PROMETHEUS=true
  Started under the name ratelimit, it listens on every interface.

Other variables of envoyproxy/ratelimit keep their meaning; one that has none here is named in the log at start.
`
