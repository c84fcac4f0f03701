#!/usr/bin/env bash
# Format, lint and the tests of the workspace.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tools.sh
tools
scripts/lint.sh --format
scripts/lint.sh --lint
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
cargo nextest run --workspace --locked --success-output never
