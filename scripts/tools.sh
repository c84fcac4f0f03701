# shellcheck shell=bash
# Sourced by the other scripts: puts the tools of tools.txt into target/tools, and them and Rust and Go on the path.
# A tool that cannot be installed is not on the path; the script that needs it reports that.
export PATH="$PWD/target/tools/bin:$HOME/.cargo/bin:/usr/local/go/bin:$PATH"
tools() {
    local wanted
    wanted=$(sha256sum <scripts/tools.txt)
    if [ "$(cat target/tools/installed 2>/dev/null)" != "$wanted" ]; then
        python3 -m venv target/tools &&
            target/tools/bin/pip install --quiet --disable-pip-version-check --requirement scripts/tools.txt &&
            echo "$wanted" >target/tools/installed
    fi
}
