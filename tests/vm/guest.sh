#!/bin/bash
# PID 1 of the test machine once its root disk is mounted: makes a plain host with the wanted layout of control groups, runs
# the wanted tests and writes the report to the third disk.
#
# boot.sh starts it. Disks: vda root, vdb a tar of the tree that is now in /src (source, programs and `job`, which is the list of
# pytest's arguments), vdc takes a tar of the report back. Lines "vm: ..." on the first serial port tell tests/vm/lane how
# far it is.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
say() {
    echo "vm: $*" >/dev/ttyS0
}
say "up"
mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
if grep -qw quicksand.cgroups=v1 /proc/cmdline; then
    mount -t tmpfs -o nosuid,nodev,noexec,mode=755 tmpfs /sys/fs/cgroup
    for controllers in cpu,cpuacct memory pids blkio; do
        mkdir "/sys/fs/cgroup/$controllers"
        mount -t cgroup -o "nosuid,nodev,noexec,$controllers" cgroup "/sys/fs/cgroup/$controllers"
    done
else
    mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 /sys/fs/cgroup
fi
mkdir -p /dev/pts /dev/shm
mount -t devpts -o nosuid,noexec,gid=5,mode=620,ptmxmode=666 devpts /dev/pts
ln -sf pts/ptmx /dev/ptmx
ln -sf /proc/self/fd /dev/fd
ln -sf fd/0 /dev/stdin
ln -sf fd/1 /dev/stdout
ln -sf fd/2 /dev/stderr
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs /dev/shm
mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs /run
# Without udev nobody makes the node whose opening loads the module. The other modules load themselves.
modprobe loop
modprobe fuse
ip link set lo up
hostname vm
# As systemd sets it; else one test that opens all it may uses up the machine's.
echo 9223372036854775807 >/proc/sys/fs/file-max
ulimit -n 20000
mkdir -p /report
[ -e /etc/resolv.conf ] || echo "nameserver 127.0.0.1" >/etc/resolv.conf
cd /src || say "no tree"
tools/users
say "tests"
export QUICKSAND_BUILD=/src/build QUICKSAND_TEST_DIR=/var/tmp/qs-vm QUICKSAND_TEST_CACHE=/var/cache/quicksand-test
mkdir -m 755 "$QUICKSAND_TEST_DIR"
for image in images/*.tar; do
    [ ! -e "$image" ] || mv "$image" "$QUICKSAND_TEST_CACHE"
done
mapfile -t arguments </src/job
tools/leak-check before "$QUICKSAND_TEST_DIR" /report/leaks
# Each folder of tests by itself, because their fixtures are not for each other; what is no test goes to all.
options=()
folders=()
for a in "${arguments[@]}"; do
    case "$a" in
    tests/*)
        folder=${a#tests/}
        folder=${folder%%/*}
        [[ " ${folders[*]} " == *" $folder "* ]] || folders+=("$folder")
        ;;
    *) options+=("$a") ;;
    esac
done
worst=5
for folder in "${folders[@]}"; do
    wanted=()
    for a in "${arguments[@]}"; do
        [[ "$a/" != "tests/$folder/"* ]] || wanted+=("$a")
    done
    setsid -w /usr/bin/python3 -m pytest -p no:cacheprovider -v -rs --tb=short --junitxml="/report/junit-$folder.xml" "${options[@]}" \
        "${wanted[@]}" </dev/null >/dev/hvc0 2>&1
    status=$?
    # 5: none selected, 0: all passed, 1: some failed; anything else is not about a test, and is told before all.
    if [ "$worst" = 5 ] || { [ "$status" != 5 ] && [ "$status" -gt "$worst" ]; }; then
        worst=$status
    fi
done
echo "$worst" >/report/status
tools/leak-check after "$QUICKSAND_TEST_DIR" /report/leaks >/report/left 2>&1 || echo 1 >/report/leaked
dmesg >/report/dmesg
tar -cf /dev/vdc -C /report .
sync
say "done"
# The kernel was told to reset at once (reboot=t), and QEMU ends at a reset.
reboot -f 2>/dev/null || echo b >/proc/sysrq-trigger
