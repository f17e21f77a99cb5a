#!/bin/sh
# Backups of PostgreSQL: base backups, the write-ahead log (WAL) after them, restores to a point in time, and dumps. docs/guides/backup.md explains them.
set -eu

usage() {
  cat <<'TEXT'
Usage: postgres.sh COMMAND

  base FOLDER                copy the whole server into FOLDER, and verify the copy
  archive FOLDER PATH NAME   keep one file of WAL in FOLDER; for postgresql.conf:
                               archive_command = '/path/to/postgres.sh archive /backup/wal "%p" "%f"'
  receive FOLDER             keep WAL in FOLDER as the server writes it, until a signal
  prune BASE FOLDER          remove WAL from FOLDER that is older than the base backup in BASE
  restore BASE WAL DATA [TIME]
                             make DATA the data folder of a server that replays the WAL after the base backup, to its end or
                             until TIME, such as '2026-03-01 12:00:00+00'
  dump FOLDER [PATTERN...]   write the database that DATABASE_URL names into FOLDER, without the rows of tables that match a PATTERN
  load FOLDER                load such a dump into the empty database that DATABASE_URL names, all of it or nothing

FOLDER and DATA of dump, base and restore must be missing or empty: nothing is overwritten. base and receive connect as PGHOST, PGPORT, PGUSER,
PGPASSWORD and PGSSLMODE say, with the attribute REPLICATION. restore runs as the system user that PostgreSQL runs as.
TEXT
}

fail() {
  echo "postgres.sh: $1" >&2
  exit 1
}

# need COMMAND WORDS GIVEN: stops where a command has not as many words as it takes.
need() {
  [ "$3" -eq "$2" ] || { usage >&2; fail "$1 takes $2 words, and $3 are given"; }
}

# empty FOLDER: makes the folder, and stops where there is something in it.
empty() {
  mkdir -p "$1"
  [ -z "$(ls -A "$1")" ] || fail "$1 is not empty: name a new folder, nothing is overwritten"
}

# durable PATH: returns once the file, or the folder's list of files, is on the disk.
durable() { sync "$1" 2>/dev/null || sync; }

base() {
  empty "$1"
  pg_basebackup --pgdata="$1" --checkpoint=fast --wal-method=stream --manifest-checksums=SHA256 --no-password
  pg_verifybackup --quiet "$1"
  echo "base backup: $1"
}

archive() {
  [ -d "$1" ] || fail "$1 is missing: make the folder for the WAL first"
  if [ -e "$1/$3" ]; then
    cmp -s "$2" "$1/$3" || fail "$1/$3 is there, with other contents: does another server archive into this folder?"
    return 0 # the server asks again for what was kept just before it crashed
  fi
  cp "$2" "$1/.$3.new"
  durable "$1/.$3.new"
  mv "$1/.$3.new" "$1/$3"
  durable "$1"
}

receive() {
  mkdir -p "$1"
  pg_receivewal --slot=spillway_backup --create-slot --if-not-exists --no-password
  exec pg_receivewal --directory="$1" --slot=spillway_backup --synchronous --no-password
}

prune() {
  [ -f "$1/backup_label" ] || fail "$1 is not a base backup: backup_label is missing"
  [ -d "$2" ] || fail "$2 is missing: name the folder of the WAL"
  first=$(sed -n 's/^START WAL LOCATION: .* (file \([0-9A-F]*\))$/\1/p' "$1/backup_label")
  [ -n "$first" ] || fail "$1/backup_label does not name the first file of WAL"
  pg_archivecleanup "$2" "$first"
}

restore() {
  [ "$(id -u)" -ne 0 ] || fail "run restore as the system user that PostgreSQL runs as, not as root"
  [ -f "$1/backup_manifest" ] || fail "$1 is not a base backup: backup_manifest is missing"
  [ -d "$2" ] || fail "$2 is missing: name the folder of the WAL"
  wal=$(cd "$2" && pwd)
  case $wal in *[\'\"%\\]*) fail "$wal: the folder's name must have no quotes, % or backslash" ;; esac
  case ${4-} in *[!-0-9A-Za-z:+.\ /]*) fail "the time must be like 2026-03-01 12:00:00+00" ;; esac
  pg_verifybackup --quiet "$1" || fail "the base backup in $1 is damaged"
  empty "$3"
  cp -Rp "$1/." "$3/"
  chmod 700 "$3"
  rm -f "$3/postmaster.pid" "$3/standby.signal"
  {
    echo "restore_command = 'if [ -f \"$wal/%f\" ]; then cp \"$wal/%f\" \"%p\"; else [ -f \"$wal/%f.partial\" ] && cp \"$wal/%f.partial\" \"%p\"; fi'"
    echo "recovery_target_action = 'promote'"
    echo "recovery_target_time = '${4-}'"
  } >>"$3/postgresql.auto.conf"
  : >"$3/recovery.signal"
  echo "restored to $3: start PostgreSQL on it; it replays the WAL${4:+ until $4}, and then takes changes"
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

# own_database: makes PGPASSWORD and database, a URL without the password, of DATABASE_URL: all users of a machine can read the arguments of a
# program.
own_database() {
  case ${DATABASE_URL-} in
  *[?\&]password=* | *[?\&]sslpassword=*) fail "DATABASE_URL has a password behind the ?: write postgres://user:password@host:port/name" ;;
  postgres://* | postgresql://*) ;;
  *) fail "DATABASE_URL must be like postgres://user:password@host:port/name" ;;
  esac
  database=$DATABASE_URL
  rest=${DATABASE_URL#*://}
  case ${rest%%/*} in
  *:*@*)
    login=${rest%%@*}
    PGPASSWORD=$(decoded "${login#*:}")
    export PGPASSWORD
    database=${DATABASE_URL%%://*}://${login%%:*}@${rest#*@}
    ;;
  esac
}

dump() {
  own_database
  folder=$1
  shift
  for pattern in "$@"; do
    set -- "$@" "--exclude-table-data=$pattern"
    shift
  done
  empty "$folder"
  pg_dump --format=custom --no-owner --no-privileges --no-password --file="$folder/database.new" "$@" "$database"
  pg_restore --list "$folder/database.new" >/dev/null || fail "the dump is damaged"
  durable "$folder/database.new"
  mv "$folder/database.new" "$folder/database.dump"
  echo "dump: $folder/database.dump"
}

load() {
  own_database
  [ -f "$1/database.dump" ] || fail "$1 has no database.dump: it is not a dump of postgres.sh"
  pg_restore --exit-on-error --single-transaction --no-owner --no-privileges --no-password --dbname="$database" "$1/database.dump"
  echo "loaded: $1/database.dump"
}

command=${1-}
[ $# -gt 0 ] && shift
case $command in
dump) [ $# -gt 0 ] || need dump 1 $#; dump "$@" ;;
load) need load 1 $#; load "$1" ;;
base | receive) need "$command" 1 $#; "$command" "$1" ;;
archive) need archive 3 $#; archive "$1" "$2" "$3" ;;
prune) need prune 2 $#; prune "$1" "$2" ;;
restore)
  [ $# -eq 4 ] || need restore 3 $#
  restore "$@"
  ;;
help | -h | --help) usage ;;
*) usage >&2; fail "the command ${command:-(none)} is unknown" ;;
esac
