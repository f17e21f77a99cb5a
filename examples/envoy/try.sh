#!/usr/bin/env bash
# try.sh: 200s that turn into 429s, behind Envoy, through both doors. It fails when they do not.
#
#   ENVOY       Envoy's listener                      127.0.0.1:10000
#   SIDECARS    debug ports of the sidecars           127.0.0.1:6071 127.0.0.1:6072
set -euo pipefail
envoy=${ENVOY:-127.0.0.1:10000}
sidecars=${SIDECARS:-127.0.0.1:6071 127.0.0.1:6072}

# status PATH HEADER: the status of one request.
status() { curl -sS --max-time 10 -o /dev/null -w '%{http_code}' -H "$2" "http://$envoy$1"; }

# answer PATH HEADER: what a client sees of one request.
answer() {
  curl -sS --max-time 10 -i -H "$2" "http://$envoy$1" | tr -d '\r' |
    grep -iE '^(HTTP/|retry-after|x-ratelimit|\{)' | sed 's/^/  /'
}

# knock PATH HEADER: sends requests until one is refused.
knock() {
  local path=$1 header=$2 got='' seen first wait
  echo
  echo "GET http://$envoy$path with $header"
  seen=$(answer "$path" "$header")
  first=$(awk '$1 ~ /^HTTP/ {print $2}' <<<"$seen")
  if [ "$first" = 429 ]; then
    wait=$(awk 'tolower($1) == "retry-after:" {print $2}' <<<"$seen")
    echo "  spent by an earlier run: waiting $wait s, as retry-after says"
    sleep "$wait"
    first=$(status "$path" "$header")
  fi
  printf '  %s' "$first"
  if [ "$first" != 200 ]; then
    printf '\n  wanted 200 first\n'
    exit 1
  fi
  for _ in $(seq 60); do
    got=$(status "$path" "$header")
    printf ' %s' "$got"
    [ "$got" = 200 ] || break
  done
  echo
  if [ "$got" != 429 ]; then
    echo "  wanted 429 in the end"
    exit 1
  fi
  answer "$path" "$header"
}

echo "The rate limit service: Envoy makes a descriptor of x-user, and the rules allow ten a minute."
knock /rls "x-user: try-$$-$RANDOM"

echo
echo "ext_authz: Spillway sees the request and knows its API key; a token bucket of twenty, filled again within a minute."
knock /authz "x-api-key: spillway-demo-key"

echo
echo "Both sidecars have answered, and one count was kept:"
for sidecar in $sidecars; do
  curl -sS --max-time 10 "http://$sidecar/metrics" |
    awk -v at="$sidecar" '/^spillway_decisions_total/ {sum += $2} END {printf "  http://%s/metrics: %d decisions\n", at, sum}'
done
