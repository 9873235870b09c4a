/*
 * monitor_start.h - how the keeper starts a monitor: the descriptors it is executed with
 *
 * argv is {"quicksand-monitor"}, the environment is empty. The process runs already as its own uid (its real uid is that of
 * the sandbox's root, which lets it open terminals as that),
 * without capabilities, with no_new_privs, in the sandbox's network namespace and in a cgroup beside
 * the sandbox's. It is the parent of init.
 *
 * What the keeper must have arranged for the monitor's uid:
 *  - MON_FD_CGROUP is owned by it, with cgroup.procs (which must let init's uid write too: the kernel
 *    asks for write access to the cgroup.procs of the common ancestor at CLONE_INTO_CGROUP),
 *  - the run directory of CONFIGURE is owned by it and has the node's group and the setgid bit, so that
 *    monitor.sock and the spool files get that group,
 *  - the devpts is mounted with ptmxmode=0666 and the group of terminals.
 */
#ifndef QS_IPC_MONITOR_START_H
#define QS_IPC_MONITOR_START_H

enum monitor_fd {
    MON_FD_KEEPER = 3,      /* SEQPACKET; KEEPER_CONFIGURE arrives here. End of file before it: the monitor
                               kills the sandbox and exits; after it: nothing */
    MON_FD_INIT = 4,        /* SEQPACKET; the other end is init's descriptor 3 */
    MON_FD_PIDFD = 5,       /* of init */
    MON_FD_CGROUP = 6,      /* directory of the sandbox in the v2 hierarchy */
    MON_FD_KILL = 7,        /* its cgroup.kill, O_WRONLY */
    MON_FD_MEMORY = 8,      /* directory with memory.* (v1 hierarchy, or the v2 directory) */
    MON_FD_CPU = 9,         /* directory with cpuacct.usage (v1) or cpu.stat (v2) */
    MON_FD_PIDS = 10,       /* directory with pids.current */
    MON_FD_DEVPTS = 11,     /* root of the devpts that is /dev/pts inside */
    MON_FD_OOM = 12,        /* told of by the kernel when the memory limit is reached: an eventfd (v1), memory.events (v2), or
                               anything else where there is neither */
    MON_FD_MEMINFO = 13,    /* files that are bound over those of /proc and /sys inside, O_WRONLY */
    MON_FD_STAT = 14,
    MON_FD_LOADAVG = 15,
    MON_FD_CPUINFO = 16,
    MON_FD_ONLINE = 17,     /* devices/system/cpu/online */
    MON_FD_TCP = 18,        /* listener of the network namespace: connections to foreign addresses */
    MON_FD_UDP = 19,        /* and the socket that datagrams to them reach */
    MON_FD_RAW4 = 20,       /* raw sockets, by which answers to those come from the right address */
    MON_FD_RAW6 = 21,       /* the last four may be /dev/null: no network */
    MON_FD_END = 22,
};

#endif
