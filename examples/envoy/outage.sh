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
compose="docker compose -f $(printf '%q' "$here/docker-compose.yaml")"
redis_off=${REDIS_OFF:-$compose stop redis}
redis_on=${REDIS_ON:-$compose start redis}

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

# all NAME VALUE: whether a metric has that value at each of the sidecars.
all() {
  for sidecar in $sidecars; do
    [ "$(metric "$sidecar" "$1")" = "$2" ] || return 1
  done
}

# redis COMMAND: runs it, and tells what it says if it fails.
redis() {
  local said
  if ! said=$(bash -c "$1" 2>&1); then
    printf '  this failed: %s\n%s\n' "$1" "$said"
    return 1
  fi
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

# ten: fails unless as many were admitted.
ten() {
  if [ "$admitted" != 10 ]; then
    echo "  wanted 10 of 24"
    exit 1
  fi
}

# until_all NAME VALUE: sends requests every 200 ms until a metric has that value at all sidecars, for half a minute at most.
until_all() {
  for _ in $(seq 150); do
    for _ in 1 2; do curl -sS --max-time 10 -o /dev/null -H "x-user: patient-$RANDOM" "http://$envoy/rls"; done
    if all "$1" "$2"; then return; fi
    sleep 0.2
  done
  echo "  $1 does not become $2:"
  show
  exit 1
}

run=$$-$RANDOM
echo "With Redis, ten a minute and user, whichever sidecar is asked:"
until_all spillway_degraded 0
early
spend "before-$run"
ten
show

echo
echo "Without Redis each sidecar counts for itself, and lets its share of the ten pass:"
# The share is the limit divided by the sidecars that know of each other. Envoy asks them in turn, so each spends all of it.
until_all spillway_live_sidecars "$(wc -w <<<"$sidecars" | tr -d ' ')"
# However the script ends, Redis is there again.
trap 'redis "$redis_on" || true' EXIT
redis "$redis_off"
until_all spillway_degraded 1
early
spend "during-$run"
ten
show

echo
echo "With Redis again:"
redis "$redis_on"
trap - EXIT
until_all spillway_degraded 0
early
spend "after-$run"
ten
show
