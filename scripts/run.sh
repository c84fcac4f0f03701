#!/usr/bin/env bash
# Shows the queries of the MongoDB server on this machine. If there is none, replays a recording of a real one.
#
#   scripts/run.sh           the live view
#   scripts/run.sh --demo    the live view of a server of MongoDB's wire protocol (FerretDB) with a small workload,
#                            which it starts first and stops at the end, however it ends
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:/usr/local/go/bin:$PATH"

# The variable may name a program that is already built.
sonar=${MONGOSONAR:-}
if [ -z "$sonar" ]; then
    # A debug build decodes 100,000 frames a second, and takes a third of the time of a release build.
    if [ -e target/debug/mongosonar ]; then
        echo "Building what has changed of mongosonar." >&2
    else
        echo "Building mongosonar and its web page: a few minutes, and only this time." >&2
    fi
    cargo build --locked -p mongosonar
    sonar=$PWD/target/debug/mongosonar
fi
# Whether something listens on MongoDB's port, and whether a MongoDB server runs here, on any port.
port_taken() { ss -Hltn 'sport = :27017' 2>/dev/null | grep -q .; }
serves() { port_taken || pgrep -x 'mongod|mongos' >/dev/null; }

arguments=()
[ -t 1 ] || arguments=(--duration 15s --interval 5s)

recording=fixtures/mongod-4.0-mixed/wire.pcap.gz
if [ "${1:-}" != --demo ] && ! serves; then
    echo "No MongoDB serves here: replaying a recording of MongoDB 4.0 ($recording). \`make demo\` shows a live server." >&2
    exec "$sonar" queries --replay --read "$recording" "${arguments[@]}"
fi

root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null && root=(sudo)
fi

starter=$PPID
files=$(mktemp -d)

# Ends what was started, once this script or its parent has ended. In a separate process that no signal to the others
# reaches, since they may all be killed.
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

if [ "${1:-}" != --demo ]; then
    show
    exit
fi
if port_taken; then
    echo "Something listens on port 27017 already, which the demonstration uses; \`make run\` shows a MongoDB there." >&2
    exit 1
fi

mkdir -p lab/bin
if [ -e lab/bin/server ]; then
    echo "Building what has changed of FerretDB, a server of MongoDB's protocol." >&2
else
    echo "Building FerretDB, a server of MongoDB's protocol: one to four minutes, and only this time." >&2
fi
# With the flags of lab/Makefile: with others, Go compiles everything again.
(cd lab/server && go build -trimpath -o ../bin/server .)
echo "Starting FerretDB with a small workload." >&2
mkdir "$files/data"
lab/bin/server --demo --listen 127.0.0.1:27017 --dir "$files/data" >"$files/log" 2>&1 &
server=$!
echo "$server" >"$files/server.pid"
for _ in $(seq 100); do
    grep -q '^ready' "$files/log" && break
    kill -0 "$server" 2>/dev/null || {
        cat "$files/log" >&2
        exit 1
    }
    sleep 0.1
done
show --port 27017
