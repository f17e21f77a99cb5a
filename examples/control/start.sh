#!/usr/bin/env bash
# The control plane on this machine: PostgreSQL, Redis, a control and two sidecars, with the rules of examples/rules/authz.yaml published.
# It ends with Ctrl-C and leaves nothing behind. `make control` builds what it starts.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-bin}
# Where everything listens. The guide uses the defaults.
postgres_port=${POSTGRES_PORT:-54329} redis_port=${REDIS_PORT:-63799} control_port=${CONTROL_PORT:-8090}
http_ports=(${SIDECAR_1_PORT:-8080} ${SIDECAR_2_PORT:-8180}) grpc_ports=(${SIDECAR_1_GRPC_PORT:-8081} ${SIDECAR_2_GRPC_PORT:-8181})
names=(sidecar-1 sidecar-2) debug_ports=(${SIDECAR_1_DEBUG_PORT:-6070} ${SIDECAR_2_DEBUG_PORT:-6170})
postgres=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
folder=$(mktemp -d)
children=()
trap 'for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done; wait; rm -rf "$folder"' EXIT
trap 'exit 0' INT TERM

as=()
if [ "$(id -u)" = 0 ]; then # PostgreSQL does not run as root
  chown nobody "$folder"
  as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
fi
chmod 755 "$folder"

wait_for() { # WHAT COMMAND...
  local what=$1
  shift
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  echo "$what does not start; its log:" >&2
  cat "$folder"/*.log >&2 || true
  exit 1
}

start() { # LOG COMMAND...
  local log=$folder/$1.log
  shift
  "$@" >"$log" 2>&1 &
  children+=($!)
}

cd "$folder"
"${as[@]}" "$postgres/initdb" --pgdata "$folder/data" --username spillway --auth trust --no-sync >/dev/null
cd - >/dev/null
start postgres "${as[@]}" "$postgres/postgres" -D "$folder/data" -p "$postgres_port" -h 127.0.0.1 -k "$folder"
start redis redis-server --port "$redis_port" --bind 127.0.0.1 --save '' --appendonly no --dir "$folder"
wait_for PostgreSQL "$postgres/pg_isready" -h 127.0.0.1 -p "$postgres_port" -U spillway -d postgres
export REDIS_URL=127.0.0.1:$redis_port SPILLWAY_CONTROL=http://127.0.0.1:$control_port
CONTROL_LISTEN=127.0.0.1:$control_port CONTROL_DATABASE_URL="postgres://spillway@127.0.0.1:$postgres_port/postgres?sslmode=disable" \
  start control "$bin/spillway" control serve --migrate
wait_for control curl -fsS "$SPILLWAY_CONTROL/readyz"
"$bin/spillway" rules publish examples/rules/authz.yaml --note 'the example' --yes
for i in 0 1; do
  SIDECAR_NAME=${names[i]} RULES=redis: RECORD=true PORT=${http_ports[i]} GRPC_PORT=${grpc_ports[i]} DEBUG_PORT=${debug_ports[i]} start "sidecar$i" "$bin/sidecar"
done
for i in 0 1; do
  wait_for 'a sidecar' curl -fsS "http://127.0.0.1:${http_ports[i]}/readyz"
done

cat <<TEXT
The control and its page    $SPILLWAY_CONTROL/
two sidecars                http://127.0.0.1:${http_ports[0]} and http://127.0.0.1:${http_ports[1]}
their live pages            http://127.0.0.1:${debug_ports[0]}/ and http://127.0.0.1:${debug_ports[1]}/

Try, in another shell:

TEXT
# The commands of the guide, so that the two are the same.
sed -n '/^<!-- make control -->$/,/^```$/{/^<!--\|^```/!s/^/  /p}' docs/guides/control.md
cat <<'TEXT'

Ctrl-C ends all of it.
TEXT
wait
