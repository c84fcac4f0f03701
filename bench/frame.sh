#!/bin/sh
# Headers of one frame: ours, etherparse and gopacket on the same mixed frames in the same run, in time and
# in instructions. What is not installed (go, valgrind) is left out with a message.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo build --quiet --release -p sonar-decode --example frame_instructions
example=${CARGO_TARGET_DIR:-target}/release/examples/frame_instructions

echo "== time: ours and etherparse"
cargo bench --quiet -p sonar-decode --bench frame 2>/dev/null | tee "$work/bench" | grep '^frame, .*ours'
ours=$(sed -n 's/^frame, in cache .*ours \([0-9.]*\) ns.*/\1/p' "$work/bench")

if command -v go >/dev/null; then
    echo "== time: gopacket"
    "$example" pcap "$work/mixed.pcap"
    (cd lab/peers && go build -o "$work/peer-frame" ./frame)
    "$work/peer-frame" "$work/mixed.pcap" | tee "$work/gopacket"
    theirs=$(sed -n 's/.*"new_packet_ns":\([0-9.]*\).*/\1/p' "$work/gopacket")
    awk -v ours="$ours" -v theirs="$theirs" 'BEGIN {
        printf "ratio: ours takes %.4f of NewPacket (target: 0.01 or less)\n", ours / theirs }'
else
    echo "skipped: gopacket needs go"
fi

if command -v valgrind >/dev/null; then
    echo "== instructions a frame"
    # 1,000 frames a round: the difference of 30 and 10 rounds is free of start-up, and what a loop that
    # does nothing takes is taken off.
    count() {
        valgrind --tool=callgrind --callgrind-out-file=/dev/null "$example" "$1" "$2" 2>&1 |
            sed -n 's/.*Collected : //p'
    }
    per_frame() { echo $((($(count "$1" 30) - $(count "$1" 10)) / 20 / 1000)); }
    nothing=$(per_frame nothing)
    ours=$(($(per_frame ours) - nothing))
    etherparse=$(($(per_frame etherparse) - nothing))
    echo "ours $ours, etherparse $etherparse (slices only)"
else
    echo "skipped: counting instructions needs valgrind"
fi
