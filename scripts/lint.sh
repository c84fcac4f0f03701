#!/usr/bin/env bash
# Checks the format of all sources, or lints those that are not Rust. Continues after a finding, so that one run shows
# all of them. Names and skips tools that are not installed.
#
#   scripts/lint.sh --format    format of Rust, C, Python, Go and shell (`make web` checks TypeScript)
#   scripts/lint.sh --fix       formats them
#   scripts/lint.sh --lint      lints Python, Go and shell; checks the structure of the Rust sources
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/tools.sh
tools

failed=0
# check TOOL ARGUMENT…: runs it, if it is installed.
check() {
    if ! command -v "$1" >/dev/null; then
        echo "$1 is not installed: not checked" >&2
    elif ! "$@"; then
        failed=1
    fi
}

mapfile -t c < <(git ls-files '*.c' '*.h' ':!scripts/musl')
mapfile -t shell < <(git ls-files '*.sh' .ci/run packaging/deb packaging/rpm)
mapfile -t go < <(git ls-files '*.go')
mapfile -t modules < <(git ls-files '*go.mod' | xargs -n1 dirname)

case ${1:-} in
--format)
    check cargo fmt --all --check
    check clang-format --dry-run -Werror "${c[@]}"
    check ruff format --quiet --check .
    check shfmt -i 4 -d "${shell[@]}"
    unformatted=$(check gofmt -l "${go[@]}")
    [ -z "$unformatted" ] || { echo "gofmt: $unformatted" && failed=1; }
    ;;
--fix)
    check cargo fmt --all
    check clang-format -i "${c[@]}"
    check ruff check --quiet --fix .
    check ruff format --quiet .
    check shfmt -i 4 -w "${shell[@]}"
    check gofmt -w "${go[@]}"
    [ ! -d web/node_modules ] || check npm --prefix web run --silent format
    ;;
--lint)
    check shellcheck -x -P SCRIPTDIR "${shell[@]}"
    check ruff check --quiet .
    check scripts/structure.py
    # With the flag of the build, so that both share their results.
    for module in "${modules[@]}"; do
        (cd "$module" && check go vet -trimpath ./... && exit $failed) || failed=1
    done
    ;;
*)
    echo "usage: scripts/lint.sh --format | --fix | --lint" >&2
    exit 2
    ;;
esac
exit $failed
