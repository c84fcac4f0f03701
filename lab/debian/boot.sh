#!/bin/sh
# Boots the systemd of the Debian in the folder ROOT, in namespaces and a control group of its own. Its network is a
# loopback interface. It keeps all capabilities, so that its services can load eBPF programs, and cannot change this
# machine's kernel by /proc/sys or /sys.
#
#   boot.sh ROOT CGROUP    CGROUP: a new folder in the hierarchy of cgroup v2
set -eu
mkdir "$2"
echo $$ >"$2/cgroup.procs"
# shellcheck disable=SC2016  # the inner shell expands them
exec unshare --cgroup --ipc --mount --net --pid --uts --fork --kill-child sh -eu -c '
    root=$1
    ip link set lo up
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    mount -t sysfs sys "$root/sys"
    mount -o remount,bind,ro "$root/sys"
    mount -t cgroup2 cgroup "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 run "$root/run"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666 pts "$root/dev/pts"
    mount -t tmpfs shm "$root/dev/shm"
    for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
        number=${node#*:}
        mknod -m 666 "$root/dev/${node%%:*}" c "${number%:*}" "${number#*:}"
    done
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    # A node of its own: systemd changes the rights of its console.
    mknod -m 600 "$root/dev/console" c 1 3
    cd "$root"
    pivot_root . mnt
    umount -l /mnt
    exec env -i container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/lib/systemd/systemd --log-target=journal
' boot "$1"
