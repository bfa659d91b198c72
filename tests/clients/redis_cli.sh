#!/usr/bin/env bash
# redis-cli: what people type, what they see, and errors that teach.
set -euo pipefail
port=$1

say() { timeout 30 redis-cli -p "$port" "$@"; }
fail() { echo "$1" >&2; exit 1; }
equal() { [ "$1" = "$2" ] || fail "got '$1', wanted '$2'"; }
# begins TEXT WORDS..: the answer to the words begins so.
begins() {
    local wanted=$1 answer; shift
    answer=$(say "$@" 2>&1) || true
    [[ $answer == "$wanted"* ]] || fail "$*: got '$answer', wanted '$wanted..'"
}
# The value behind a name in a flat answer.
field() { awk -v name="$1" 'found { print; exit } $0 == name { found = 1 }'; }

equal "$(say PING)" PONG
equal "$(say LOCK user:42 OWNER ann ID a LEASE 60000 | field status)" granted
equal "$(say LOCK user:42 OWNER bob | field owner)" ann
equal "$(say LOCK user:42 OWNER bob WAIT 20 | field status)" timeout
equal "$(say -3 LOCK user:42 OWNER bob | head -n 1)" 'status busy'
equal "$(say LOCKS NAME user:42 | field owner)" ann
equal "$(say RENEW a LEASE 90000 | field status)" renewed
equal "$(say UNLOCK a)" 1
equal "$(say UNLOCK nobody)" 0
equal "$(say LOCKS)" ""

# Waiting blocks, and the lock is handed over.
say LOCK k ID k1 >/dev/null
waiting=$(mktemp)
trap 'rm -f "$waiting"' EXIT
say LOCK k ID k2 WAIT 20000 >"$waiting" &
until [ "$(say LOCKS WAITERS | grep -c '^waiting$')" = 1 ]; do
    [ "$SECONDS" -lt 60 ] || fail "nobody waits after 60 s"
done
equal "$(say UNLOCK k1)" 1
wait $!
equal "$(field status <"$waiting")" granted
equal "$(say UNLOCK k2)" 1

# The Redis subset.
equal "$(say SET k v NX PX 60000)" OK
equal "$(say SET k w NX PX 60000)" ""
equal "$(say GET k)" v
equal "$(say EXISTS k none)" 1
equal "$(say PEXPIRE k 50000)" 1
[ "$(say PTTL k)" -le 50000 ] || fail "PTTL is more than was set"
equal "$(say DEL k)" 1
equal "$(say PTTL k)" -2

# Many at once, and from a file.
equal "$(printf 'SET p v NX\nGET p\nDEL p\nGET p\n' | say)" $'OK\nv\n1'
for at in $(seq 1000); do
    printf '*4\r\n$3\r\nSET\r\n$%d\r\nm%d\r\n$1\r\nv\r\n$2\r\nNX\r\n' $((${#at} + 1)) "$at"
done | say --pipe | grep -q 'errors: 0, replies: 1000' || fail "--pipe was not answered 1000 times"
equal "$(say EXISTS m1 m500 m1000)" 3

# Errors say what to do.
begins 'UNKNOWN ' INCR k
begins 'SYNTAX SET takes a lock here, so it needs NX' SET k v
begins 'SYNTAX ' LOCK
begins 'SYNTAX ' LOCK k WAIT
begins "SYNTAX 'Q' is not a mode; usage: LOCK " LOCK k MODE Q
begins 'BADARG ' LOCK k LEASE soon
begins 'BADARG there is one database, 0' SELECT 3
begins 'NOAUTH this server has no tokens' AUTH secret
begins 'BADARG there is no channel' SUBSCRIBE other
begins 'LIMIT ' LOCK "$(printf 'x%.0s' $(seq 600))"
say LOCK k ID reused >/dev/null
begins 'IDREUSED ' LOCK other ID reused
equal "$(say UNLOCK reused)" 1

echo restart
read -r _
if [ "$KEYLATCH_KIND" = durable ]; then equal "$(say EXISTS m1)" 1; else equal "$(say EXISTS m1)" 0; fi
echo "done"
