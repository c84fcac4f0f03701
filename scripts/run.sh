#!/usr/bin/env bash
# Shows the queries of the MongoDB that serves on this machine. Where none does, starts a real server of
# MongoDB's wire protocol with a small workload first, and stops it at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:/usr/local/go/bin:$PATH"

cargo build --release --locked -p mongosonar
sonar=$PWD/target/release/mongosonar
arguments=()
[ -t 1 ] || arguments=(--duration 15s --interval 5s)

root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null && root=(sudo)
fi

if ss -Hltn 'sport = :27017' 2>/dev/null | grep -q . || pgrep -x 'mongod|mongos' >/dev/null; then
    exec "${root[@]}" "$sonar" queries "${arguments[@]}"
fi

echo "No MongoDB serves here: starting FerretDB with a small workload, so that there is something to hear." >&2
mkdir -p lab/bin
(cd lab/server && go build -o ../bin/server .)
data=$(mktemp -d)
log=$(mktemp)
lab/bin/server --demo --listen 127.0.0.1:27017 --dir "$data" >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$data" "$log"' EXIT
for _ in $(seq 100); do
    grep -q '^ready' "$log" && break
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
done
"${root[@]}" "$sonar" queries --port 27017 "${arguments[@]}"
