#!/usr/bin/env bash
# start.sh: Envoy, two sidecars, Redis and the upstream of docker-compose.yaml as processes of this machine, on loopback. Prometheus,
# Grafana and tracing are left out. `make demo` builds what it starts.
#
#   SIGUSR1 stops Redis, SIGUSR2 starts it again, SIGINT (Ctrl-C) or SIGTERM ends everything.
set -euo pipefail
cd "$(dirname "$0")/../.."
sidecar=${SIDECAR_BIN:-bin/sidecar} envoy=${ENVOY_BIN:-.tools/envoy/envoy}
# Where everything listens. The first four are those that docker-compose.yaml publishes.
envoy_port=${ENVOY_PORT:-10000} admin_port=${ENVOY_ADMIN_PORT:-9901}
debug_ports=("${SIDECAR_1_PORT:-6071}" "${SIDECAR_2_PORT:-6072}")
grpc_ports=("${SIDECAR_1_GRPC_PORT:-18081}" "${SIDECAR_2_GRPC_PORT:-18082}")
http_ports=("${SIDECAR_1_HTTP_PORT:-18091}" "${SIDECAR_2_HTTP_PORT:-18092}")
redis_port=${REDIS_PORT:-63790} upstream_port=${UPSTREAM_PORT:-18000}

fail() {
  echo "demo: $*" >&2
  exit 1
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

for program in "$sidecar" "$envoy" redis-server curl; do
  command -v "$program" >/dev/null || fail "$program is missing: make demo-tools build"
done
for port in "$envoy_port" "$admin_port" "${debug_ports[@]}" "${grpc_ports[@]}" "${http_ports[@]}" "$redis_port" "$upstream_port"; do
  if listens "$port"; then
    fail "port $port is taken: the head of examples/envoy/start.sh names the variable that changes it"
  fi
done

folder=$(mktemp -d)
names=() pids=()
trap 'for pid in "${pids[@]}"; do [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; done; wait; rm -rf "$folder"' EXIT
trap 'echo Stopping.; exit 0' INT TERM

# start SLOT NAME PROGRAM...: its output goes into the folder.
start() {
  local slot=$1 name=$2
  shift 2
  "$@" >"$folder/$name.log" 2>&1 &
  names[slot]=$name pids[slot]=$!
}

# await NAME COMMAND...: until the command succeeds, half a minute at most.
await() {
  local name=$1
  shift
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  cat "$folder/$name.log" >&2
  fail "$name does not start"
}

# rewrite FILE: a copy of an Envoy configuration with the addresses of this machine. The collector of traces is left out.
rewrite() {
  local copy=$folder/$1
  sed -e "s/address: 0.0.0.0, port_value: 10000/address: 127.0.0.1, port_value: $envoy_port/" \
    -e "s/address: 0.0.0.0, port_value: 9901/address: 127.0.0.1, port_value: $admin_port/" \
    -e "s/address: 0.0.0.0, port_value: 8000/address: 127.0.0.1, port_value: $upstream_port/" \
    -e "s/address: upstream, port_value: 8000/address: 127.0.0.1, port_value: $upstream_port/" \
    -e "s/address: sidecar-1, port_value: 8081/address: 127.0.0.1, port_value: ${grpc_ports[0]}/" \
    -e "s/address: sidecar-2, port_value: 8081/address: 127.0.0.1, port_value: ${grpc_ports[1]}/" \
    -e "s/address: otel-collector, port_value: 4317/address: 127.0.0.1, port_value: 1/" "examples/envoy/$1" >"$copy"
  if grep -nE '[{]address: [a-z0]' "$copy" >&2; then
    fail "$1 has an address that start.sh does not replace"
  fi
}

start_redis() {
  start 0 redis redis-server --save '' --appendonly no --bind 127.0.0.1 --port "$redis_port" --dir "$folder"
  await redis listens "$redis_port"
}

stop_redis() {
  kill "${pids[0]}"
  wait "${pids[0]}" 2>/dev/null || true
  pids[0]=''
}

start_envoy() { # SLOT NAME FILE
  rewrite "$3"
  start "$1" "$2" "$envoy" -c "$folder/$3" --log-level warn --disable-hot-restart --concurrency 1
}

start_redis
start_envoy 1 upstream upstream.yaml
for i in 0 1; do
  start $((i + 2)) "sidecar-$((i + 1))" env -i PATH="$PATH" RULES=examples/rules REDIS_URL="127.0.0.1:$redis_port" \
    STORE_SILENCE="${STORE_SILENCE:-1s}" PORT="${http_ports[i]}" GRPC_PORT="${grpc_ports[i]}" DEBUG_PORT="${debug_ports[i]}" "$sidecar"
done
await upstream curl -fsS "http://127.0.0.1:$upstream_port/"
for i in 0 1; do await "sidecar-$((i + 1))" curl -fsS "http://127.0.0.1:${http_ports[i]}/readyz"; done
start_envoy 4 envoy demo.yaml
await envoy curl -fsS "http://127.0.0.1:$admin_port/ready"
trap 'stop_redis; echo Redis is off.' USR1
trap 'start_redis; echo Redis is on.' USR2

echo "Envoy, two sidecars, Redis and an upstream run as in examples/envoy/docker-compose.yaml:"
echo
for i in "${!pids[@]}"; do printf '  %-10s pid %s\n' "${names[i]}" "${pids[i]}"; done
where="ENVOY=127.0.0.1:$envoy_port SIDECARS='127.0.0.1:${debug_ports[0]} 127.0.0.1:${debug_ports[1]}'"
cat <<TEXT

  limited by x-user      http://127.0.0.1:$envoy_port/rls
  limited by x-api-key   http://127.0.0.1:$envoy_port/authz
  Envoy's admin page     http://127.0.0.1:$admin_port
  live pages             http://127.0.0.1:${debug_ports[0]} and http://127.0.0.1:${debug_ports[1]}
  metrics                http://127.0.0.1:${debug_ports[0]}/metrics and http://127.0.0.1:${debug_ports[1]}/metrics
  logs                   $folder

Try in another terminal:

$where examples/envoy/try.sh
$where REDIS_OFF='kill -USR1 $$' REDIS_ON='kill -USR2 $$' examples/envoy/outage.sh
$where examples/envoy/operate.sh

Or ask a sidecar yourself:

export SPILLWAY_SERVER=http://127.0.0.1:${debug_ports[0]}
bin/spillway top --all
bin/spillway doctor --envoy 127.0.0.1:$admin_port --http 127.0.0.1:${http_ports[0]}

Ctrl-C ends it all.
TEXT
while sleep 0.2; do
  for i in "${!pids[@]}"; do
    if [ -n "${pids[i]}" ] && ! kill -0 "${pids[i]}" 2>/dev/null; then
      tail "$folder/${names[i]}.log" >&2
      fail "${names[i]} ended"
    fi
  done
done
