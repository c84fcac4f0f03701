#!/bin/sh
# Makes a minimal Debian, of this machine's release, with systemd: FOLDER/root.
#
#   root.sh FOLDER
set -eu
folder=$1
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
rm -rf "$folder"
mkdir -p "$folder/memory"
# In memory, as dpkg waits for the disk after each file.
mount -t tmpfs -o size=2g debian "$folder/memory"
trap 'umount "$folder/memory"' EXIT
debootstrap --variant=minbase --include=systemd,systemd-sysv "$release" "$folder/memory/root" >"$folder/log" 2>&1 || {
    tail -5 "$folder/log" >&2
    exit 1
}
rm -rf "$folder"/memory/root/var/cache/apt/archives/*.deb "$folder"/memory/root/var/lib/apt/lists/*
# There is no terminal to log in at.
ln -s /dev/null "$folder/memory/root/etc/systemd/system/console-getty.service"
cp -a "$folder/memory/root" "$folder/root"
echo "$release" >"$folder/ready"
