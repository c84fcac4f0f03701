#!/usr/bin/env bash
# Builds what users install, into target/package: a .deb and an .rpm for each architecture, and the folder from which
# the container image is built. The same sources give the same files. Names what it cannot build here, and why.
#
#   scripts/package.sh
#
#   MONGOSONAR=FILE       packages this program of this machine's architecture, and builds none
#   MONGOSONAR_OTHER=FILE the same for the other architecture, together with MONGOSONAR
#   VERSION=N             instead of the version in Cargo.toml
#   OUT=FOLDER            instead of target/package
#   SOURCE_DATE_EPOCH=N   the date of everything in the packages; the last commit's by default
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tools.sh
nfpm_version=v2.43.4
out=$(realpath -m "${OUT:-target/package}")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
PACKAGE_VERSION=${VERSION:-$(sed -nE 's/^version = "(.*)"$/\1/p' Cargo.toml | head -1)}
export SOURCE_DATE_EPOCH PACKAGE_VERSION
skipped=()

say() { echo "package: $*" >&2; }

# The names of an architecture in Debian, Go and containers.
other_name() { case $1 in x86_64) echo amd64 ;; aarch64) echo arm64 ;; esac }

# program ARCH: prints the path of the static program, which it builds. Returns 77 where that is impossible here, and
# prints the reason.
program() {
    if [ -n "${MONGOSONAR:-}" ]; then
        local file=$MONGOSONAR
        [ "$1" = "$(uname -m)" ] || file=${MONGOSONAR_OTHER:-}
        [ -n "$file" ] || { echo "MONGOSONAR_OTHER names no program" && return 77; }
        realpath "$file"
        return
    fi
    local code=0
    { scripts/dist-musl.sh release "$1" 2>&1 1>&3 | tee "$work/log" >&2; } 3>"$work/built" || code=$?
    if [ $code = 0 ]; then
        tail -1 "$work/built"
    else
        sed -n 's/^musl: //p' "$work/log" | tail -1
    fi
    return $code
}

# zip_to FILE: compresses its input without a date.
zip_to() {
    mkdir -p "$(dirname "$1")"
    gzip -9n >"$1"
}

# What is the same for each architecture: fills the folder with manual pages, completions, terms.
common() {
    local program=$1 folder=$2 page
    mkdir -p "$folder/completions" "$folder/doc"
    "$program" man "$folder/pages"
    for page in "$folder"/pages/*; do
        zip_to "$folder/man/${page##*/}.gz" <"$page"
    done
    rm -r "$folder/pages"
    "$program" completions bash >"$folder/completions/mongosonar"
    "$program" completions zsh >"$folder/completions/_mongosonar"
    "$program" completions fish >"$folder/completions/mongosonar.fish"
    cp packaging/copyright "$folder/doc/copyright"
    scripts/third-party.py "$(uname -m)-unknown-linux-musl" | zip_to "$folder/doc/THIRD-PARTY-LICENSES.gz"
    zip_to "$folder/doc/changelog.gz" <CHANGELOG.md
    zip_to "$folder/changelog.Debian.gz" <<TEXT
mongosonar ($PACKAGE_VERSION-1) stable; urgency=medium

  * Version $PACKAGE_VERSION; changelog.gz has the changes.

 -- $(sed -n 's/^maintainer: //p' packaging/nfpm.yaml)  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
TEXT
    cp -r packaging "$folder/packaging"
    # rpm needs the user before it unpacks the configuration, whose group it is.
    {
        echo "systemd-sysusers --replace=/usr/lib/sysusers.d/mongosonar.conf - <<'END'"
        cat packaging/sysusers.conf
        echo END
    } >"$folder/packaging/rpm/pre"
}

nfpm=$PWD/target/tools/nfpm-$nfpm_version/nfpm
if [ ! -x "$nfpm" ]; then
    say "installing nfpm $nfpm_version"
    # As the programs of the lab are built, so that what both import is compiled once.
    GOBIN=$(dirname "$nfpm") go install -trimpath "github.com/goreleaser/nfpm/v2/cmd/nfpm@$nfpm_version"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out/container" "$out"/mongosonar[-_]*.{deb,rpm}
mkdir -p "$out/container/licences"
native=$(program "$(uname -m)") || {
    say "$native"
    exit 1
}
common "$native" "$work"
cp packaging/Containerfile "$out/container/"
cp "$work"/doc/{copyright,THIRD-PARTY-LICENSES.gz} "$out/container/licences/"
# For every architecture, unlike the machine's own.
sysroot=$(rustc --print sysroot)
strip=$sysroot/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/rust-objcopy
for arch in x86_64 aarch64; do
    code=0 built=$native
    [ "$arch" = "$(uname -m)" ] || built=$(program $arch) || code=$?
    case $code in
    0) ;;
    77)
        skipped+=("$arch: $built")
        continue
        ;;
    *) exit $code ;;
    esac
    PACKAGE_ARCH=$(other_name $arch)
    export PACKAGE_ARCH
    mkdir -p "$work/bin" "$out/container/linux-$PACKAGE_ARCH"
    LD_LIBRARY_PATH=$sysroot/lib "$strip" --strip-all "$built" "$work/bin/mongosonar"
    chmod 755 "$work/bin/mongosonar"
    cp "$work/bin/mongosonar" "$out/container/linux-$PACKAGE_ARCH/"
    # The mode and the date of a file in a package are those of the file here.
    chmod -R u=rwX,go=rX "$work"
    find "$work" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
    for format in deb rpm; do
        (cd "$work" && "$nfpm" package --config packaging/nfpm.yaml --packager $format --target "$out/") >&2
    done
done
(cd "$out" && sha256sum ./*.deb ./*.rpm >SHA256SUMS)
for line in "${skipped[@]}"; do
    say "skipped: $line"
done
ls "$out"/*.deb "$out"/*.rpm
