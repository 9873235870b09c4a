#!/bin/busybox sh
# shellcheck shell=dash
# PID 1 of the initial file system of the test machine: loads what the disks need, puts the tree on the root disk and goes over to it.
#
# tests/vm/parts.py puts it there as /init, with /modules, which lists the kernel modules in the order of loading.
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t devtmpfs dev /dev
exec </dev/ttyS0 >/dev/ttyS0 2>&1
while read -r module; do
    /bin/busybox insmod "$module" || echo "vm: cannot load $module"
done </modules
n=0
while [ ! -b /dev/vda ] && [ "$n" -lt 100 ]; do
    /bin/busybox usleep 20000
    n=$((n + 1))
done
/bin/busybox mount -t ext4 /dev/vda /root || echo "vm: no root disk"
/bin/busybox mkdir -p /root/src
/bin/busybox tar -xf /dev/vdb -C /root/src || echo "vm: no tree"
/bin/busybox mount -o move /dev /root/dev
exec /bin/busybox switch_root /root /bin/bash /src/tests/vm/guest.sh
