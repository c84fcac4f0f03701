#!/usr/bin/env bash
# Calls the compiler as Cargo wants it (RUSTC_WORKSPACE_WRAPPER), and has each crate of the workspace checked while it is
# compiled: by Clippy, whose driver is a compiler too, and by rustdoc. Runs of their own would compile all dependencies
# once more. What they find is a warning, so that one run shows everything; Cargo repeats it where nothing has changed.
#
# Some tests are compiled without optimisation, which takes a fifth of the time. The libraries that they call, and the
# program, keep theirs (Cargo.toml). A profile cannot say that: it holds for a package with its tests.
set -euo pipefail

case " $* " in
*" --crate-name sonar_core "*" --test "* | *" --crate-name sonar_decode "*" --test "* | *" --crate-name it "*" --test "*) set -- "$@" -C opt-level=0 ;;
esac
# Not what Cargo asks of the compiler before it builds.
case " $* " in
*" --crate-name ___ "* | *" -vV "*) exec "$@" ;;
esac
clippy-driver "$@" --cap-lints warn

case " $* " in
*" --test "*) exit ;;
*" src/lib.rs "* | *"/src/lib.rs "* | *"/src/main.rs "*) ;;
*) exit ;;
esac
arguments=()
shift
while [ $# -gt 0 ]; do
    case $1 in
    --emit=*) ;;
    --out-dir)
        arguments+=(--out-dir "$2/../doc")
        shift
        ;;
    *) arguments+=("$1") ;;
    esac
    shift
done
exec rustdoc "${arguments[@]}" --cap-lints warn
