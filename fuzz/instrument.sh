#!/bin/sh
# Cargo calls this in place of the compiler for the crates of this workspace (run.sh): instruments all but what runs
# during the build.
case " $* " in
*" --crate-name build_script_"* | *" --crate-type proc-macro "*) exec "$@" ;;
*)
    # shellcheck disable=SC2086  # one word for each flag
    exec "$@" $SONAR_FUZZ_FLAGS
    ;;
esac
