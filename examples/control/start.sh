#!/usr/bin/env bash
# The control plane on this machine: PostgreSQL, Redis, a control and two sidecars, with the rules of examples/rules/authz.yaml published.
# It ends with Ctrl-C and leaves nothing behind. `make control` builds what it starts.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-bin}
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
start postgres "${as[@]}" "$postgres/postgres" -D "$folder/data" -p 54329 -h 127.0.0.1 -k "$folder"
start redis redis-server --port 63799 --bind 127.0.0.1 --save '' --appendonly no --dir "$folder"
wait_for PostgreSQL "$postgres/pg_isready" -h 127.0.0.1 -p 54329 -U spillway -d postgres
export REDIS_URL=127.0.0.1:63799
CONTROL_DATABASE_URL='postgres://spillway@127.0.0.1:54329/postgres?sslmode=disable' start control "$bin/spillway" control --migrate
wait_for control curl -fsS http://127.0.0.1:8090/readyz
"$bin/spillway" control publish examples/rules/authz.yaml --note 'the example'
RULES=redis: RECORD=true PORT=8080 GRPC_PORT=8081 DEBUG_PORT=6070 start sidecar1 "$bin/sidecar"
RULES=redis: RECORD=true PORT=8180 GRPC_PORT=8181 DEBUG_PORT=6170 start sidecar2 "$bin/sidecar"
wait_for 'a sidecar' curl -fsS http://127.0.0.1:8080/readyz
wait_for 'a sidecar' curl -fsS http://127.0.0.1:8180/readyz

cat <<'TEXT'
The control plane serves http://127.0.0.1:8090, and two sidecars http://127.0.0.1:8080 and :8180. Try, in another shell:

  api=http://127.0.0.1:8090/v1/domains/api json='content-type: application/json'

  # a tier, a user on it, and a key, whose secret is shown this once
  curl -X PUT $api/tiers/small -H "$json" -d '{"display_name": "Small", "price": 9, "limits": [{"count": 3, "per": "1m"}]}'
  curl -X PUT $api/users/ann -H "$json" -d '{"tier": "small"}'
  curl -X POST $api/keys -H "$json" -d '{"id": "ann-1", "user": "ann"}'

  # the fourth request within a minute is refused, whichever sidecar is asked
  ask='{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}'
  for port in 8080 8180 8080 8180; do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:$port/json -d "$ask"; done

  # change the limit, see it in force; then see what was changed and by whom
  curl -X PUT $api/tiers/small -H "$json" -H 'if-match: *' -d '{"display_name": "Small", "price": 9, "limits": [{"count": 100, "per": "1m"}]}'
  curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:8080/json -d "$ask"
  curl 'http://127.0.0.1:8090/v1/audit?domain=api'

  # who was refused, and what ann used today and this month, a few seconds later
  curl "$api/events?outcome=refused"
  bin/spillway control usage api --user ann

  # publish other rules, compare them with the first, and roll back
  sed 's|limit: 20/1m|limit: 5/1m|' examples/rules/authz.yaml > /tmp/authz.yaml && bin/spillway control publish /tmp/authz.yaml --note 'fewer'
  curl "$api/diff?from=1&to=2"
  curl -X PUT $api/published -H "$json" -H 'if-match: "2"' -d '{"version": 1, "note": "too few"}'
  curl -s http://127.0.0.1:6070/v1/rules | grep -A5 published

Ctrl-C ends all of it.
TEXT
wait
