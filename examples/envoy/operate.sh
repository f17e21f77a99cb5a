#!/usr/bin/env bash
# operate.sh: the questions of an operator, each with the command that answers it, on the demo. It fails when an answer is wrong, and
# leaves the demo as it was.
#
#   ENVOY       Envoy's listener                      127.0.0.1:10000
#   SIDECARS    debug ports of the sidecars           127.0.0.1:6071 127.0.0.1:6072
#   SPILLWAY    the command                           bin/spillway, which make build makes
set -euo pipefail
cd "$(dirname "$0")/../.."
envoy=${ENVOY:-127.0.0.1:10000}
sidecars=${SIDECARS:-127.0.0.1:6071 127.0.0.1:6072}
spillway=${SPILLWAY:-bin/spillway}
export SPILLWAY_SERVER=http://${sidecars%% *}
key=spillway-demo-key                       # of the user alice, in examples/rules/authz.yaml

# status: the status of one request of alice.
status() { curl -sS --max-time 10 -o /dev/null -w '%{http_code}' -H "x-api-key: $key" "http://$envoy/authz"; }

# becomes STATUS: sends requests of alice until one gets it. A change is in force everywhere within a second.
becomes() {
  local got=''
  for _ in $(seq 50); do
    got=$(status)
    if [ "$got" = "$1" ]; then
      echo "Alice now gets $got."
      return
    fi
    sleep 0.2
  done
  echo "wanted $1, got $got"
  exit 1
}

# ask CODE ARGUMENTS: shows a command and what it prints. It must end with the code.
ask() {
  local want=$1 got=0 argument shown=''
  shift
  for argument in "$@"; do
    case $argument in *' '*) shown+=" \"$argument\"" ;; *) shown+=" $argument" ;; esac
  done
  echo
  echo "\$ spillway$shown"
  "$spillway" "$@" || got=$?
  if [ "$got" != "$want" ]; then
    echo "wanted exit code $want, got $got"
    exit 1
  fi
}

question() { printf '\n== %s\n' "$1"; }

# restore: alice without a block, and with the limits of the rules.
restore() {
  "$spillway" unblock alice --domain api >/dev/null
  "$spillway" tier alice none --limit none --domain api >/dev/null
}

restore
trap restore EXIT
echo "Alice gets five requests an hour, and sends eight:"
ask 0 tier alice --limit 5/1h --domain api
status >/dev/null # after start.sh and outage.sh Redis is empty, and reset wants a counter
"$spillway" reset alice --domain api >/dev/null
becomes 200
for _ in $(seq 7); do printf '%s ' "$(status)"; done
echo
becomes 429

question "Who is limited now?"
ask 0 top --all --domain api

question "Why was this request refused?"
ask 1 explain /authz --domain api --peer 127.0.0.1 --header "x-api-key=$key" --header x-forwarded-for=127.0.0.1

question "What has this user left?"
ask 0 counters list alice --domain api

question "Let them through."
ask 0 reset alice --domain api
becomes 200

question "Block that one."
ask 0 block alice --domain api --for 1h --reason "Call us."
becomes 403
ask 0 unblock alice --domain api
becomes 200

question "Which rules does each sidecar run? Does one of them work worse than it should?"
ask 0 sidecars list
ask 0 rules show --domain api

question "What would a lower limit have done yesterday?"
ask 0 replay --rules examples/replay/before.yaml examples/replay/access.log
ask 0 replay --rules examples/replay/before.yaml --against examples/replay/after.yaml --user user examples/replay/access.log

question "Is this pull request safe?"
ask 0 lint examples/rules
ask 0 test examples/rules/tests
ask 1 diff examples/replay/before.yaml examples/replay/after.yaml
