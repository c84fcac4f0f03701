#!/bin/sh
# Calls the compiler as Cargo wants it (RUSTC_WORKSPACE_WRAPPER), but compiles these tests without optimisation, which
# takes a fifth of the time. The libraries that they call, and the program, keep theirs (Cargo.toml). A profile cannot
# say that: it holds for a package with its tests.
case " $* " in
*" --crate-name sonar_core "*" --test "* | *" --crate-name it "*" --test "*) exec "$@" -C opt-level=0 ;;
esac
exec "$@"
