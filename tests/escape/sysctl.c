/*
 * sysctl.c - kernel settings: opened for writing, in the control too, and never written
 */
#include <fcntl.h>

#include "escape.h"

#define SETTING(fn, path)                                                                                             \
    static int fn(const struct ctx *c)                                                                                \
    {                                                                                                                 \
        (void)c;                                                                                                      \
        return open_outcome("/proc/sys/" path, O_WRONLY);                                                             \
    }
SETTING(core_pattern, "kernel/core_pattern")
SETTING(core_pipe_limit, "kernel/core_pipe_limit")
SETTING(modprobe, "kernel/modprobe")
SETTING(sysrq, "kernel/sysrq")
SETTING(panic, "kernel/panic")
SETTING(kptr_restrict, "kernel/kptr_restrict")
SETTING(dmesg_restrict, "kernel/dmesg_restrict")
SETTING(aslr, "kernel/randomize_va_space")
SETTING(perf_paranoid, "kernel/perf_event_paranoid")
SETTING(bpf_disabled, "kernel/unprivileged_bpf_disabled")
SETTING(pid_max, "kernel/pid_max")
SETTING(threads_max, "kernel/threads-max")
SETTING(last_pid, "kernel/ns_last_pid")
SETTING(poweroff, "kernel/poweroff_cmd")
SETTING(keys_max, "kernel/keys/maxkeys")
SETTING(pty_max, "kernel/pty/max")
SETTING(overcommit, "vm/overcommit_memory")
SETTING(drop_caches, "vm/drop_caches")
SETTING(panic_on_oom, "vm/panic_on_oom")
SETTING(mmap_min_addr, "vm/mmap_min_addr")
SETTING(file_max, "fs/file-max")
SETTING(suid_dumpable, "fs/suid_dumpable")
SETTING(protected_symlinks, "fs/protected_symlinks")
SETTING(protected_hardlinks, "fs/protected_hardlinks")
SETTING(user_namespaces, "user/max_user_namespaces")
SETTING(inotify, "fs/inotify/max_user_instances")
SETTING(ip_forward, "net/ipv4/ip_forward")
SETTING(ping_group, "net/ipv4/ping_group_range")
SETTING(host_name, "kernel/hostname")
SETTING(shm_max, "kernel/shmmax")
SETTING(tiocsti, "dev/tty/legacy_tiocsti")

static int sysrq_trigger(const struct ctx *c)
{
    (void)c;
    return open_outcome("/proc/sysrq-trigger", O_WRONLY);
}

#define REFUSED "EACCES|EROFS"

const struct attempt sysctl_table[] = {
    {"sysctl-core-pattern", "name a program that the kernel starts at a crash", REFUSED, NULL, core_pattern, 0},
    {"sysctl-core-pipe-limit", "let crash programs wait", REFUSED, NULL, core_pipe_limit, 0},
    {"sysctl-modprobe", "name the program that loads modules", REFUSED "|ENOENT", "absent:ENOENT", modprobe, 0},
    {"sysctl-sysrq", "allow magic keys", REFUSED "|ENOENT", "absent:ENOENT", sysrq, 0},
    {"sysctl-sysrq-trigger", "press a magic key", REFUSED "|ENOENT", "absent:ENOENT", sysrq_trigger, 0},
    {"sysctl-panic", "change what a panic does", REFUSED, NULL, panic, 0},
    {"sysctl-kptr-restrict", "show kernel addresses", REFUSED, NULL, kptr_restrict, 0},
    {"sysctl-dmesg-restrict", "open the kernel's log to all", REFUSED, NULL, dmesg_restrict, 0},
    {"sysctl-aslr", "lay programs out without randomness", REFUSED, NULL, aslr, 0},
    {"sysctl-perf-paranoid", "allow tracing to all", REFUSED "|ENOENT", "absent:ENOENT", perf_paranoid, 0},
    {"sysctl-bpf-disabled", "allow BPF to all", REFUSED "|ENOENT", "absent:ENOENT", bpf_disabled, 0},
    {"sysctl-pid-max", "change the number of processes", REFUSED, NULL, pid_max, 0},
    {"sysctl-threads-max", "change the number of threads", REFUSED, NULL, threads_max, 0},
    {"sysctl-last-pid", "choose the next pid", REFUSED "|ENOENT", "absent:ENOENT", last_pid, 0},
    {"sysctl-poweroff", "name the program that turns the machine off", REFUSED, NULL, poweroff, 0},
    {"sysctl-keys", "change the number of keys", REFUSED "|ENOENT", "absent:ENOENT", keys_max, 0},
    {"sysctl-pty-max", "change the number of terminals", REFUSED, NULL, pty_max, 0},
    {"sysctl-overcommit", "change how memory is promised", REFUSED, NULL, overcommit, 0},
    {"sysctl-drop-caches", "throw the host's caches away", REFUSED, NULL, drop_caches, 0},
    {"sysctl-panic-on-oom", "make lack of memory a panic", REFUSED, NULL, panic_on_oom, 0},
    {"sysctl-mmap-min-addr", "allow mappings at zero", REFUSED, NULL, mmap_min_addr, 0},
    {"sysctl-file-max", "change the number of open files", REFUSED, NULL, file_max, 0},
    {"sysctl-suid-dumpable", "let setuid programs leave dumps", REFUSED, NULL, suid_dumpable, 0},
    {"sysctl-protected-symlinks", "switch the protection of links off", REFUSED, NULL, protected_symlinks, 0},
    {"sysctl-protected-hardlinks", "switch the protection of hard links off", REFUSED, NULL, protected_hardlinks, 0},
    {"sysctl-user-namespaces", "allow nested user namespaces again", REFUSED, NULL, user_namespaces,
     NEEDS_SYS_RESOURCE},
    {"sysctl-inotify", "change the number of file watches", REFUSED, NULL, inotify, 0},
    {"sysctl-ip-forward", "forward packets", REFUSED, NULL, ip_forward, 0},
    {"sysctl-ping-group", "change who may send pings", REFUSED, NULL, ping_group, 0},
    {"sysctl-hostname", "change the host name", REFUSED, NULL, host_name, 0},
    {"sysctl-shmmax", "change the limit of shared memory", REFUSED, NULL, shm_max, 0},
    {"sysctl-tiocsti", "allow typing into terminals", REFUSED "|ENOENT", "absent:ENOENT", tiocsti, 0},
    TABLE_END,
};
