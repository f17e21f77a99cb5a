#!/bin/sh
# Backups of Redis: its snapshot (RDB) or its log of changes (AOF), and restores of both. docs/guides/backup.md explains them.
set -eu

usage() {
  cat <<'TEXT'
Usage: redis.sh COMMAND

  rdb FOLDER          have the server write a snapshot, and fetch it into FOLDER over the network
  aof FOLDER          copy the log of changes of a server of this machine, with its snapshot, into FOLDER
  restore FROM DATA   make DATA the data folder of a server (its setting dir) with the backup in FROM
  forget              remove the profiles that a control plane keeps in the server; its control writes those that its database
                      has again at once. Needed after PostgreSQL was restored to a point in time

FOLDER and DATA must be missing or empty: nothing is overwritten. REDIS_CLI says how the server is reached, such as
'redis-cli -h redis -p 6379 --tls' (default redis-cli); REDISCLI_AUTH is the password. Without REDIS_CLI the variables of a sidecar
do, for one server: REDIS_URL, REDIS_AUTH or REDIS_AUTH_FILE, REDIS_TLS. aof needs Redis 7 and access to its folder.
TEXT
}

fail() {
  echo "redis.sh: $1" >&2
  exit 1
}

need() {
  [ "$3" -eq "$2" ] || { usage >&2; fail "$1 takes $2 words, and $3 are given"; }
}

empty() {
  mkdir -p "$1"
  [ -z "$(ls -A "$1")" ] || fail "$1 is not empty: name a new folder, nothing is overwritten"
}

# decoded TEXT: the text without percent encoding, as in a URL.
decoded() {
  printf '%s\n' "$1" | LC_ALL=C awk 'BEGIN { hex = "0123456789abcdef" }
    {
      while (match($0, /%[0-9A-Fa-f][0-9A-Fa-f]/)) {
        byte = 16 * index(hex, tolower(substr($0, RSTART + 1, 1))) + index(hex, tolower(substr($0, RSTART + 2, 1))) - 17
        text = text substr($0, 1, RSTART - 1) sprintf("%c", byte)
        $0 = substr($0, RSTART + 3)
      }
      print text $0
    }'
}

# as_sidecar: reads how the server is reached from the variables that a sidecar reads. The password is in no argument: all users of a machine
# can read those of a program.
as_sidecar() {
  rest=$REDIS_URL
  tls=
  case $rest in
  unix://*) rest=${rest#unix://} ;;
  rediss://*) tls=1 rest=${rest#*://} ;;
  *://*) rest=${rest#*://} ;;
  esac
  password=
  case ${rest%%/*} in
  ?*@*)
    login=${rest%%@*}
    rest=${rest#*@}
    user=$(decoded "${login%%:*}")
    case $login in *:*) password=$(decoded "${login#*:}") ;; esac
    ;;
  esac
  rest=${rest%%,*}
  case $rest in
  /*) socket=$rest ;;
  */*) database=${rest#*/} ;;
  esac
  host=${rest%%/*}
  case $host in
  *]:* | [!\[]*:*) port=${host##*:} host=${host%:*} ;;
  esac
  host=${host#\[} host=${host%\]}
  [ "${REDIS_TLS:-false}" = false ] || tls=1
  auth=${REDIS_AUTH-}
  [ -z "${REDIS_AUTH_FILE-}" ] || auth=$(cat "$REDIS_AUTH_FILE")
  case $auth in *:*) user=${auth%%:*} ;; esac
  [ -z "$auth" ] || password=${auth#*:}
  [ -z "$password" ] || export REDISCLI_AUTH="$password"
}

# cli WORDS: sends a command. REDIS_CLI is several words.
cli() {
  if [ -n "${REDIS_CLI-}" ] || [ -z "${REDIS_URL-}" ]; then
    # shellcheck disable=SC2086
    ${REDIS_CLI:-redis-cli} "$@"
  elif [ -n "${socket-}" ]; then
    redis-cli -s "$socket" ${user:+--user "$user"} "$@"
  else
    redis-cli -h "${host:-localhost}" -p "${port:-6379}" ${database:+-n "$database"} ${user:+--user "$user"} ${tls:+--tls} \
      ${tls:+${REDIS_TLS_CACERT:+--cacert "$REDIS_TLS_CACERT"}} \
      ${tls:+${REDIS_TLS_CLIENT_CERT:+--cert "$REDIS_TLS_CLIENT_CERT" --key "$REDIS_TLS_CLIENT_KEY"}} "$@"
  fi
}
[ -n "${REDIS_CLI-}" ] || [ -z "${REDIS_URL-}" ] || as_sidecar

# setting NAME: the value of a setting of the server.
setting() { cli CONFIG GET "$1" | sed -n 2p | tr -d '\r'; }

# fact NAME: a line of the server's INFO persistence.
fact() { cli INFO persistence | tr -d '\r' | sed -n "s/^$1://p"; }

rdb() {
  empty "$1"
  cli --rdb "$1/dump.rdb.new" >/dev/null
  redis-check-rdb "$1/dump.rdb.new" >/dev/null || fail "the snapshot that the server sent is damaged"
  mv "$1/dump.rdb.new" "$1/dump.rdb"
  echo "snapshot: $1/dump.rdb"
}

aof() {
  [ "$(fact aof_enabled)" = 1 ] || fail "the server has no log of changes: it runs with appendonly no, or does not answer"
  from=$(setting dir)/$(setting appenddirname)
  name=$(setting appendfilename)
  [ -r "$from/$name.manifest" ] || fail "$from/$name.manifest cannot be read: run this on the server's machine, as a user that may read its folder"
  empty "$1"
  percent=$(setting auto-aof-rewrite-percentage)
  trap 'cli CONFIG SET auto-aof-rewrite-percentage "$percent" >/dev/null' EXIT
  trap 'exit 1' HUP INT TERM
  cli CONFIG SET auto-aof-rewrite-percentage 0 >/dev/null # a rewrite would change the files while they are copied
  while [ "$(fact aof_rewrite_in_progress)$(fact aof_rewrite_scheduled)" != 00 ]; do sleep 1; done
  mkdir "$1/appendonlydir"
  sed "s/^file $name\./file appendonly.aof./" "$from/$name.manifest" >"$1/appendonlydir/appendonly.aof.manifest"
  sed -n 's/^file \([^ ]*\) .*$/\1/p' "$from/$name.manifest" | while read -r file; do
    cp -p "$from/$file" "$1/appendonlydir/appendonly.aof${file#"$name"}"
  done
  echo "log of changes: $1/appendonlydir"
}

restore() {
  if [ -f "$1/appendonlydir/appendonly.aof.manifest" ]; then
    empty "$2"
    cp -Rp "$1/appendonlydir" "$2/"
    echo "restored to $2: start redis-server with --dir $2 --appendonly yes"
  elif [ -f "$1/dump.rdb" ]; then
    redis-check-rdb "$1/dump.rdb" >/dev/null || fail "$1/dump.rdb is damaged"
    empty "$2"
    cp -p "$1/dump.rdb" "$2/dump.rdb"
    # A server with appendonly yes reads its log alone, and would start empty: the snapshot is the log's beginning, too.
    mkdir "$2/appendonlydir"
    cp -p "$1/dump.rdb" "$2/appendonlydir/appendonly.aof.1.base.rdb"
    echo "file appendonly.aof.1.base.rdb seq 1 type b" >"$2/appendonlydir/appendonly.aof.manifest"
    echo "restored to $2: start redis-server with --dir $2, with or without --appendonly yes"
  else
    fail "$1 has neither dump.rdb nor appendonlydir: it is not a backup of redis.sh"
  fi
}

# Removes those of the keys in ARGV that hold a profile of a control plane, and its marks, so that it looks at once.
forget_script='local n = 0
for _, key in ipairs(ARGV) do
  local text = redis.call("GET", key)
  if text and (string.find(text, "\"control\":true", 1, true) or string.sub(key, -5) == ":mark") then n = n + redis.call("UNLINK", key) end
end
return n'

forget() {
  for kind in user tenant api_key secret ip mark; do
    cli --scan --pattern "*rec1:*:$kind" | tr '\n' '\0' | xargs -0 -r -n 500 /bin/sh "$0" forget-keys | awk -v kind="$kind" '{ n += $NF } END { print kind ": " n + 0 " removed" }'
  done
}

command=${1-}
[ $# -gt 0 ] && shift
case $command in
rdb | aof) need "$command" 1 $#; "$command" "$1" ;;
forget) need forget 0 $#; forget ;;
forget-keys) cli EVAL "$forget_script" 0 "$@" ;; # of forget
restore) need restore 2 $#; restore "$1" "$2" ;;
help | -h | --help) usage ;;
*) usage >&2; fail "the command ${command:-(none)} is unknown" ;;
esac
