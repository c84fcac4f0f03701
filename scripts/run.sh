#!/usr/bin/env bash
# Shows the queries of the MongoDB that serves on this machine. Where none does, starts a real server of
# MongoDB's wire protocol with a small workload first, and stops it at the end, however that comes.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:/usr/local/go/bin:$PATH"

# A program that is built already can be named.
sonar=${MONGOSONAR:-}
if [ -z "$sonar" ]; then
    cargo build --release --locked -p mongosonar
    sonar=$PWD/target/release/mongosonar
fi
arguments=()
[ -t 1 ] || arguments=(--duration 15s --interval 5s)

root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null && root=(sudo)
fi

starter=$PPID
files=$(mktemp -d)

# Ends what was started, once this script or what started it has ended. A process of its own, which no signal to
# the others reaches: they may all be killed.
clean_up_afterwards() {
    trap '' HUP INT QUIT TERM
    exec </dev/null >/dev/null 2>&1
    while kill -0 "$starter" && kill -0 $$; do
        sleep 0.3
    done
    for name in sonar server; do
        pid=$(cat "$files/$name.pid") || continue
        kill "$pid" || "${root[@]}" kill "$pid" || continue
        for _ in $(seq 30); do
            kill -0 "$pid" || break
            sleep 0.1
        done
        kill -0 "$pid" && kill -KILL "$pid"
    done
    rm -rf "$files"
}
clean_up_afterwards &
disown

# show ARGUMENT…: mongosonar, in the foreground.
show() {
    (
        echo "$BASHPID" >"$files/sonar.pid"
        exec "${root[@]}" "$sonar" queries "$@" "${arguments[@]}"
    )
}

if ss -Hltn 'sport = :27017' 2>/dev/null | grep -q . || pgrep -x 'mongod|mongos' >/dev/null; then
    show
    exit
fi

echo "No MongoDB serves here: starting FerretDB with a small workload, so that there is something to show." >&2
mkdir -p lab/bin
(cd lab/server && go build -o ../bin/server .)
mkdir "$files/data"
lab/bin/server --demo --listen 127.0.0.1:27017 --dir "$files/data" >"$files/log" 2>&1 &
server=$!
echo "$server" >"$files/server.pid"
for _ in $(seq 100); do
    grep -q '^ready' "$files/log" && break
    kill -0 "$server" 2>/dev/null || { cat "$files/log" >&2; exit 1; }
    sleep 0.1
done
show --port 27017
