#!/usr/bin/env bash
# outage.sh: takes Redis away and brings it back. Limits hold meanwhile, metrics tell, and all is well again afterwards. It fails
# when that is not so. Takes about half a minute.
#
#   ENVOY       Envoy's listener                      127.0.0.1:10000
#   SIDECARS    debug ports of the sidecars           127.0.0.1:6071 127.0.0.1:6072
#   REDIS_OFF   what stops Redis                      docker compose stop redis
#   REDIS_ON    what starts it again                  docker compose start redis
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
envoy=${ENVOY:-127.0.0.1:10000}
sidecars=${SIDECARS:-127.0.0.1:6071 127.0.0.1:6072}
redis_off=${REDIS_OFF:-docker compose -f '$here/docker-compose.yaml' stop redis}
redis_on=${REDIS_ON:-docker compose -f '$here/docker-compose.yaml' start redis}

# metric SIDECAR NAME: the sum of a metric's series.
metric() {
  curl -sS --max-time 10 "http://$1/metrics" | awk -v name="$2" '$1 == name || index($1, name "{") == 1 {sum += $2} END {printf "%d", sum}'
}

# show: what the metrics say about Redis.
show() {
  for sidecar in $sidecars; do
    echo "  http://$sidecar/metrics: spillway_degraded $(metric "$sidecar" spillway_degraded)," \
      "spillway_breaker_state $(metric "$sidecar" spillway_breaker_state)," \
      "spillway_degraded_decisions_total $(metric "$sidecar" spillway_degraded_decisions_total)"
  done
}

# degraded: whether each of the sidecars has that value of spillway_degraded.
degraded() {
  for sidecar in $sidecars; do
    [ "$(metric "$sidecar" spillway_degraded)" = "$1" ] || return 1
  done
}

# spend USER: sends 24 requests of a new user; admitted is how many got 200.
spend() {
  local got
  admitted=0
  printf '  %s:' "$1"
  for _ in $(seq 24); do
    got=$(curl -sS --max-time 10 -o /dev/null -w '%{http_code}' -H "x-user: $1" "http://$envoy/rls")
    printf ' %s' "$got"
    if [ "$got" = 200 ]; then admitted=$((admitted + 1)); fi
  done
  printf '\n  %s admitted\n' "$admitted"
}

# early: waits for the first half of a minute, so that no count falls into two of the rules' windows.
early() { while [ "$(($(date +%s) % 60))" -gt 40 ]; do sleep 1; done; }

# within MIN MAX: fails unless as many were admitted.
within() {
  if [ "$admitted" -lt "$1" ] || [ "$admitted" -gt "$2" ]; then
    echo "  wanted $1 to $2 of 24"
    exit 1
  fi
}

# until_degraded VALUE: sends a request every 200 ms until all sidecars say so, for half a minute at most.
until_degraded() {
  for _ in $(seq 150); do
    for _ in 1 2; do curl -sS --max-time 10 -o /dev/null -H "x-user: patient-$RANDOM" "http://$envoy/rls"; done
    if degraded "$1"; then return; fi
    sleep 0.2
  done
  echo "  spillway_degraded does not become $1:"
  show
  exit 1
}

run=$$-$RANDOM
echo "With Redis, ten a minute and user, whichever sidecar is asked:"
until_degraded 0
early
spend "before-$run"
within 10 10
show

echo
echo "Without Redis each sidecar counts for itself, and lets its share of the ten pass:"
bash -c "$redis_off" >/dev/null 2>&1
# However the script ends, Redis is there again.
trap 'bash -c "$redis_on" >/dev/null 2>&1 || true' EXIT
until_degraded 1
early
spend "during-$run"
within 2 10
show

echo
echo "With Redis again:"
bash -c "$redis_on" >/dev/null 2>&1
trap - EXIT
until_degraded 0
early
spend "after-$run"
within 10 10
show
