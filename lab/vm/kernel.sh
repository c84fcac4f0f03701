#!/bin/sh
# Extracts Debian's stock cloud kernel from its package into FOLDER: vmlinuz and lib/modules. Installs nothing, so
# that the machine's own /boot does not change.
#
#   kernel.sh FOLDER [PACKAGE]
set -eu
folder=$1
package=${2:-linux-image-cloud-$(dpkg --print-architecture)}
find_image() {
    apt-cache depends "$package" | sed -nE 's/^ *Depends: (linux-image-[0-9].*)$/\1/p' | head -1
}
take() {
    (cd "$folder/package" && apt-get download -qq "$1" 2>/dev/null && dpkg-deb -x ./*.deb .)
}
image=$(find_image)
rm -rf "$folder"
mkdir -p "$folder/package"
trap 'rm -rf "$folder/package"' EXIT
if [ -z "$image" ] || ! take "$image"; then
    # The package lists may be older than the archive.
    apt-get update -qq
    image=$(find_image)
    take "${image:?no package $package here}"
fi
mv "$folder"/package/boot/vmlinuz-* "$folder/vmlinuz"
mv "$folder"/package/boot/config-* "$folder/config"
mv "$folder/package/lib" "$folder/lib"
depmod=$(PATH="$PATH:/sbin:/usr/sbin" command -v depmod)
"$depmod" --basedir "$folder" "${image#linux-image-}"
echo "$image" >"$folder/ready"
