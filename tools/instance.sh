# shellcheck shell=bash disable=SC2034
# instance.sh - where the instance that `make run` starts keeps its things; sourced by tools/run and tools/stop
#
# Everything is below one directory, so that `make run` on a machine is easy to find and to remove.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
home=${QUICKSAND_HOME:-/var/lib/quicksand}
listen=${QUICKSAND_LISTEN:-127.0.0.1:7070}
run_dir=${QUICKSAND_RUN_DIR:-/run/quicksand}
# Where the command router listens: the same host, the next port.
router_listen=${QUICKSAND_ROUTER_LISTEN:-${listen%:*}:$((${listen##*:} + 1))}
# Ports for tunnels: the same host, from the API's port + 30 on.
tunnel_listen=${QUICKSAND_TUNNEL_LISTEN:-${listen%:*}:$((${listen##*:} + 30))-$((${listen##*:} + 93))}
# An instance elsewhere may run beside the first one: control groups and user ids of its own, told by its place.
cgroup_name=quicksand
id_base_range=16384
if [ "$home" != /var/lib/quicksand ]; then
    place=$(printf %s "$home" | cksum | cut -d ' ' -f 1)
    cgroup_name=quicksand-$place
    id_base_range=$((2000 + place % 12 * 1000))
fi
config=$home/run.conf
log=$home/quicksandd.log
pid_file=$home/quicksandd.pid

# Prints the pid of the running daemon, or fails.
daemon_pid() {
    local pid
    pid=$(cat "$pid_file" 2>/dev/null) || return 1
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = quicksandd ] || return 1
    echo "$pid"
}

stop_daemon() {
    local pid i
    pid=$(daemon_pid) || return 0
    kill -TERM "$pid"
    for ((i = 0; i < 200; i++)); do
        daemon_pid >/dev/null || break
        sleep 0.1
    done
    if daemon_pid >/dev/null; then
        echo "quicksandd (pid $pid) did not stop within 20 s; killing it" >&2
        kill -KILL "$pid"
    fi
    rm -f "$pid_file"
}
