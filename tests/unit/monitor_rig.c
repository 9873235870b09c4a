/*
 * monitor_rig.c - keeper, init and node of the monitor's tests
 */
#include "monitor_rig.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ipc/channel.h"
#include "ipc/exec_spec.h"
#include "ipc/init_proto.h"
#include "ipc/monitor_start.h"
#include "sys/fd.h"

#define V2_MOUNTS {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}
#define CHILDREN 1100
#define MONITOR_UID 64321
#define SEND_TIMEOUT_MS 10000

/* ---- init ---- */

static struct child {
    uint32_t seq;
    pid_t pid;
} children[CHILDREN];

static void init_send(int fd, uint16_t type, const void *p, size_t n)
{
    while (chan_send(fd, type, 0, p, n, NULL, 0) == -EAGAIN)
        (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
}

static void child_run(const struct init_exec *x, struct exec_spec *s, struct chan_msg *m, int status)
{
    int n = 0;
    int null = open("/dev/null", O_RDWR);
    int in = (x->flags & (INIT_EXEC_TTY | INIT_EXEC_STDIN)) != 0 ? m->fds[n++] : null;
    int out = (x->flags & INIT_EXEC_TTY) != 0 ? in : (x->flags & INIT_EXEC_STDOUT) != 0 ? m->fds[n++] : null;
    int err = (x->flags & INIT_EXEC_TTY) != 0 ? in : (x->flags & INIT_EXEC_STDERR) != 0 ? m->fds[n++] : null;
    sigset_t none;

    if ((x->flags & INIT_EXEC_MERGE) != 0)
        err = out;
    (void)setsid();
    if ((x->flags & INIT_EXEC_TTY) != 0)
        (void)ioctl(in, TIOCSCTTY, 0);
    (void)dup2(in, 0);
    (void)dup2(out, 1);
    (void)dup2(err, 2);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)fcntl(status, F_SETFD, FD_CLOEXEC);
    (void)syscall(SYS_close_range, 3, status - 1, 0);
    (void)syscall(SYS_close_range, status + 1, ~0u, 0);
    (void)execve(s->argv[0], (char *const *)(uintptr_t)s->argv, (char *const *)(uintptr_t)s->envp);
    int e = errno;
    (void)!write(status, &e, sizeof e);
    _exit(127);
}

/* As the init of a sandbox does it: the child starts in its group. */
static pid_t fork_into(const struct init_exec *x, const struct chan_msg *m)
{
    struct clone_args args = {.exit_signal = SIGCHLD};

    if ((x->flags & INIT_EXEC_CGROUP) != 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)m->fds[m->nfds - 1];
    }
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static void init_exec(int fd, struct chan_msg *m)
{
    static const char *arrays[64];
    static uint8_t block[LIMIT_CHANNEL_MESSAGE];
    struct init_exec x;
    struct exec_spec s;
    struct init_started started = {0};
    uint8_t out[128];
    int status[2];

    if (init_exec_decode(&x, m->data, m->len) < 0)
        _exit(9);
    memcpy(block, x.spec, x.spec_len);
    if (exec_spec_decode(&s, block, x.spec_len, arrays, 64) < 0)
        _exit(10);
    if (pipe(status) < 0)
        _exit(11);
    pid_t pid = fork_into(&x, m);
    if (pid == 0)
        child_run(&x, &s, m, status[1]);
    fd_close(&status[1]);
    started.seq = x.seq;
    started.pid = pid;
    if (read(status[0], &started.error, sizeof started.error) > 0) {
        memcpy(started.step, "exec", 5);
        started.pid = 0;
        (void)waitpid(pid, NULL, 0);
    } else {
        for (int i = 0; i < CHILDREN; i++) {
            if (children[i].pid == 0) {
                children[i] = (struct child){x.seq, pid};
                break;
            }
        }
    }
    fd_close(&status[0]);
    init_send(fd, INIT_STARTED, out, init_started_encode(&started, out, sizeof out));
}

static void init_signal(const struct chan_msg *m)
{
    struct init_signal s;

    if (init_signal_decode(&s, m->data, m->len) < 0)
        _exit(12);
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].pid != 0 && (children[i].seq == s.seq || s.scope == INIT_SIG_ALL))
            (void)kill(s.scope == INIT_SIG_PROCESS ? children[i].pid : -children[i].pid, s.signal);
}

static void init_reap(int fd, bool silent)
{
    uint8_t out[128];
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < CHILDREN; i++) {
            if (children[i].pid != pid)
                continue;
            struct init_exited e = {.seq = children[i].seq, .code = -1, .comm = "victim"};
            if (WIFEXITED(status))
                e.code = WEXITSTATUS(status);
            else
                e.signal = WTERMSIG(status);
            children[i].pid = 0;
            if (silent)
                continue;
            init_send(fd, INIT_EXITED, out, init_exited_encode(&e, out, sizeof out));
        }
    }
}

static void init_setup(int fd, const struct chan_msg *m, const struct rig_options *o)
{
    uint8_t out[128];
    struct init_setup s;
    struct init_ready ready = {.error = o->ready_error};

    if (init_setup_decode(&s, m->data, m->len) < 0 || m->nfds != 4 || s.nlayers != 2)
        _exit(13);
    if (o->ready_error != 0)
        memcpy(ready.step, "mount overlay", 14);
    (void)usleep(o->ready_delay_ms * 1000);
    init_send(fd, INIT_READY, out, init_ready_encode(&ready, out, sizeof out));
    if (o->behaviour != NULL && strcmp(o->behaviour, "garbage") == 0)
        init_send(fd, INIT_EXITED, "xx", 2);
    if (o->behaviour != NULL && strcmp(o->behaviour, "leave") == 0)
        _exit(0);
}

static _Noreturn void init_main(int fd, int kill_pipe, const struct rig_options *o)
{
    static uint8_t space[LIMIT_CHANNEL_INLINE];
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    int sfd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    struct pollfd p[3] = {{fd, POLLIN, 0}, {sfd, POLLIN, 0}, {kill_pipe, POLLIN, 0}};
    for (;;) {
        struct chan_msg m;
        (void)poll(p, 3, -1);
        if (p[2].revents != 0) {        /* as cgroup.kill would */
            for (int i = 0; i < CHILDREN; i++)
                if (children[i].pid != 0)
                    (void)kill(-children[i].pid, SIGKILL);
            (void)kill(getpid(), SIGKILL);
        }
        if (p[1].revents != 0) {
            struct signalfd_siginfo si;
            while (read(sfd, &si, sizeof si) > 0)
                continue;
            init_reap(fd, o->behaviour != NULL && strcmp(o->behaviour, "silent") == 0);
        }
        int r = p[0].revents != 0 ? chan_recv(fd, space, sizeof space, 0, &m) : -EAGAIN;
        if (r == 0)
            _exit(0);
        if (r < 0)
            continue;
        if (m.type == INIT_SETUP)
            init_setup(fd, &m, o);
        else if (m.type == INIT_EXEC)
            init_exec(fd, &m);
        else if (m.type == INIT_SIGNAL)
            init_signal(&m);
        chan_msg_done(&m);
    }
}

/* ---- keeper ---- */

static const char *v2_mount(void)
{
    static const char *const mounts[] = V2_MOUNTS;
    char path[128];

    for (size_t i = 0; i < array_len(mounts); i++) {
        (void)snprintf(path, sizeof path, "%s/cgroup.procs", mounts[i]);
        if (access(path, W_OK) == 0)
            return mounts[i];
    }
    return NULL;
}

bool rig_has_groups(void)
{
    return v2_mount() != NULL;
}

static void put_file(const char *dir, const char *name, const char *text)
{
    int d = open(dir, O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(fd_replace_file(d, name, text, strlen(text), 0644, false), 0);
    fd_close(&d);
}

void rig_set_oom(struct rig *r, uint64_t kills)
{
    char path[128];
    char text[64];

    /* In place: the monitor keeps the file open. */
    (void)snprintf(path, sizeof path, "%s/memory.oom_control", r->dir);
    (void)snprintf(text, sizeof text, "under_oom 0\noom_kill %d\n", (int)kills);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
    fd_close(&fd);
}

/* Terminals of its own, as a sandbox has; where that is not allowed, the machine's. */
static int open_terminals(void)
{
    int fs = (int)syscall(SYS_fsopen, "devpts", FSOPEN_CLOEXEC);

    if (fs >= 0 && syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "ptmxmode", "0666", 0) == 0 &&
        syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0) {
        int mount = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
        if (mount >= 0)
            return mount;
    }
    return open("/dev/pts", O_PATH | O_DIRECTORY);
}

/* What the keeper does for a monitor, which has a uid of its own. */
static void hand_over(const struct rig *r)
{
    auto_close int group = r->group[0] != '\0' ? open(r->group, O_DIRECTORY | O_CLOEXEC) : -1;

    if (group >= 0 && (fchown(group, MONITOR_UID, MONITOR_UID) < 0 ||
                       fchownat(group, "cgroup.procs", MONITOR_UID, MONITOR_UID, 0) < 0))
        _exit(103);
    if (fchown(r->run_dir, MONITOR_UID, MONITOR_UID) < 0)
        _exit(103);
}

static void become_monitor(void)
{
    if (setgroups(0, NULL) < 0 || setresgid(MONITOR_UID, MONITOR_UID, MONITOR_UID) < 0 ||
        setresuid(MONITOR_UID, MONITOR_UID, MONITOR_UID) < 0)
        _exit(104);
}

static void place(int fd, int where)
{
    if (fd != where) {
        (void)dup2(fd, where);
        fd_close(&fd);
    }
}

/* The child that becomes the monitor. */
static _Noreturn void monitor_main(const struct rig *r, int keeper, const struct rig_options *o)
{
    const char *program = getenv("QS_MONITOR");
    char path[128];
    int pair[2];
    int kill_pipe[2] = {-1, -1};
    int fds[MON_FD_END];

    if (chan_pair(pair) < 0 || (r->group[0] == '\0' && pipe(kill_pipe) < 0))
        _exit(101);
    pid_t init = fork();
    if (init == 0) {
        if (r->group[0] != '\0') {
            int d = open(r->group, O_DIRECTORY);
            (void)fd_write_at(d, "cgroup.procs", "0");
            fd_close(&d);
        }
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        fd_close(&pair[0]);
        fd_close(&keeper);
        init_main(pair[1], kill_pipe[0], o);
    }
    fd_close(&pair[1]);
    fds[MON_FD_KEEPER] = keeper;
    fds[MON_FD_INIT] = pair[0];
    fds[MON_FD_PIDFD] = (int)syscall(SYS_pidfd_open, init, 0);
    fds[MON_FD_CGROUP] = open(r->group[0] != '\0' ? r->group : r->dir, O_DIRECTORY);
    if (r->group[0] != '\0') {
        (void)snprintf(path, sizeof path, "%s/cgroup.kill", r->group);
        fds[MON_FD_KILL] = open(path, O_WRONLY);
    } else {
        fds[MON_FD_KILL] = kill_pipe[1];
    }
    fds[MON_FD_MEMORY] = open(r->dir, O_DIRECTORY);
    fds[MON_FD_CPU] = open(r->dir, O_DIRECTORY);
    fds[MON_FD_PIDS] = open(r->dir, O_DIRECTORY);
    fds[MON_FD_DEVPTS] = open_terminals();
    fds[MON_FD_OOM] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fds[MON_FD_TCP] = o->tcp > 0 ? o->tcp : open("/dev/null", O_RDWR);
    fds[MON_FD_UDP] = o->udp > 0 ? o->udp : open("/dev/null", O_RDWR);
    fds[MON_FD_RAW4] = open("/dev/null", O_RDWR);
    fds[MON_FD_RAW6] = open("/dev/null", O_RDWR);
    for (int i = MON_FD_MEMINFO; i < MON_FD_TCP; i++) {
        (void)snprintf(path, sizeof path, "%s/figure.%d", r->dir, i - MON_FD_MEMINFO);
        fds[i] = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    }
    if (geteuid() == 0)
        hand_over(r);
    for (int i = MON_FD_KEEPER; i < MON_FD_END; i++)
        fds[i] = fcntl(fds[i], F_DUPFD, 64);        /* out of the way of the final numbers */
    for (int i = MON_FD_KEEPER; i < MON_FD_END; i++)
        place(fds[i], i);
    if (geteuid() == 0)
        become_monitor();
    (void)syscall(SYS_close_range, MON_FD_END, ~0u, 0);
    char *argv[] = {(char *)(uintptr_t)"quicksand-monitor", NULL};
    char *envp[] = {NULL};
    (void)execve(program != NULL ? program : "quicksand-monitor", argv, envp);
    _exit(102);
}

static void configure(struct rig *r, const struct rig_options *o)
{
    uint8_t out[512];
    uint8_t space[LIMIT_CHANNEL_INLINE];
    struct chan_msg m;
    int pair[2];
    struct keeper_configure c = {
        .sandbox = "sb-0123456789012345678901", .hostname = "box", .node_uid = geteuid(), .nlayers = 2,
        .shm_bytes = 1 << 20, .deadline_ms = o->deadline_ms != 0 ? clock_wall_ms() + o->deadline_ms : 0,
        .idle_ms = o->idle_ms, .grace_ms = o->grace_ms, .log_bytes = o->log_bytes,
        .options = o->tcp > 0 ? KEEPER_NETWORK : 0,
    };

    assert_int_equal(chan_pair(pair), 0);
    int null = open("/dev/null", O_RDWR);
    int fds[] = {r->run_dir, pair[1], null, null, null, null};
    size_t n = keeper_configure_encode(&c, out, sizeof out);
    assert_int_equal(chan_send(r->keeper, KEEPER_CONFIGURE, 7, out, n, fds, 6), 0);
    fd_close(&null);
    fd_close(&pair[1]);
    r->node = pair[0];
    assert_int_equal(poll(&(struct pollfd){.fd = r->keeper, .events = POLLIN}, 1, SEND_TIMEOUT_MS), 1);
    assert_int_equal(chan_recv(r->keeper, space, sizeof space, 0, &m), 1);
    assert_int_equal(m.type, KEEPER_CONFIGURED);
    assert_int_equal(m.tag, 7);
    assert_memory_equal(m.data, "\0\0\0\0", 4);
    chan_msg_done(&m);
}

void rig_start(struct rig *r, const struct rig_options *o)
{
    int pair[2];
    const char *v2 = v2_mount();

    *r = (struct rig){.node = -1, .run_dir = -1};
    (void)snprintf(r->dir, sizeof r->dir, "/tmp/monitor-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    if (v2 != NULL) {
        (void)snprintf(r->group, sizeof r->group, "%s/qs%s", v2, r->dir + strlen("/tmp/"));
        assert_int_equal(mkdir(r->group, 0755), 0);
    }
    r->run_dir = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put_file(r->dir, "cpuacct.usage", "5000000\n");
    put_file(r->dir, "memory.usage_in_bytes", "4096\n");
    put_file(r->dir, "memory.max_usage_in_bytes", "8192\n");
    put_file(r->dir, "pids.current", "3\n");
    rig_set_oom(r, 0);
    assert_int_equal(chan_pair(pair), 0);
    r->keeper = pair[0];
    r->monitor = fork();
    if (r->monitor == 0) {
        fd_close(&pair[0]);
        monitor_main(r, pair[1], o);
    }
    fd_close(&pair[1]);
    if (!o->no_configure)
        configure(r, o);
}

int rig_wait_exit(struct rig *r, int timeout_ms)
{
    int status;

    for (int64_t end = clock_boot_ms() + timeout_ms; clock_boot_ms() < end; (void)usleep(2000)) {
        if (waitpid(r->monitor, &status, WNOHANG) == r->monitor) {
            r->monitor = 0;
            return status;
        }
    }
    return -1;
}

static void remove_below(const char *group)
{
    DIR *d = opendir(group);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL)
        if (e->d_type == DT_DIR && e->d_name[0] != '.')
            (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    if (d != NULL)
        (void)closedir(d);
}

/* Until the last of the killed is gone. */
static void remove_groups(const char *group)
{
    for (int i = 0; i < 500; i++) {
        remove_below(group);
        if (rmdir(group) == 0 || errno != EBUSY)
            return;
        (void)usleep(2000);
    }
}

void rig_stop(struct rig *r)
{
    if (r->group[0] != '\0') {
        int d = open(r->group, O_DIRECTORY | O_CLOEXEC);
        (void)fd_write_at(d, "cgroup.kill", "1");
        fd_close(&d);
    }
    if (r->monitor > 0 && rig_wait_exit(r, 2000) < 0) {
        (void)kill(r->monitor, SIGKILL);
        (void)waitpid(r->monitor, NULL, 0);
    }
    if (r->group[0] != '\0')
        remove_groups(r->group);
    DIR *d = opendir(r->dir);
    struct dirent *e;
    while (d != NULL && (e = readdir(d)) != NULL)
        (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d != NULL)
        (void)closedir(d);
    (void)rmdir(r->dir);
    fd_close(&r->node);
    fd_close(&r->keeper);
    fd_close(&r->run_dir);
}

size_t rig_file(struct rig *r, const char *name, void *out, size_t size)
{
    int fd = openat(r->run_dir, name, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return SIZE_MAX;
    ssize_t n = fd_read_all(fd, out, size);
    fd_close(&fd);
    return n < 0 ? SIZE_MAX : (size_t)n;
}

/* ---- node ---- */

/* Replies that came before they were asked for. */
static struct kept {
    int node;
    uint32_t tag;
    uint16_t type;
    size_t len;
    uint8_t *data;
} kept[4096];

uint32_t rig_send(int node, enum mon_type type, const void *payload, size_t len)
{
    static uint32_t tag;
    int r;

    tag++;
    while ((r = chan_send(node, (uint16_t)type, tag, payload, len, NULL, 0)) == -EAGAIN)
        (void)poll(&(struct pollfd){.fd = node, .events = POLLOUT}, 1, SEND_TIMEOUT_MS);
    assert_int_equal(r, 0);
    return tag;
}

static bool receive(int node, int wait_ms)
{
    static uint8_t space[LIMIT_CHANNEL_INLINE];
    struct chan_msg m;

    if (poll(&(struct pollfd){.fd = node, .events = POLLIN}, 1, wait_ms) <= 0)
        return false;
    if (chan_recv(node, space, sizeof space, 0, &m) <= 0)
        return false;
    for (size_t i = 0; i < array_len(kept); i++) {
        if (kept[i].data != NULL)
            continue;
        kept[i] = (struct kept){node, m.tag, m.type, m.len, mem_alloc(m.len + 1)};
        memcpy(kept[i].data, m.data, m.len);
        break;
    }
    chan_msg_done(&m);
    return true;
}

static struct kept *find(int node, uint32_t tag)
{
    for (size_t i = 0; i < array_len(kept); i++)
        if (kept[i].data != NULL && kept[i].node == node && kept[i].tag == tag)
            return &kept[i];
    return NULL;
}

bool rig_has_reply(int node, uint32_t tag, int wait_ms)
{
    for (int64_t end = clock_boot_ms() + wait_ms;;) {
        int64_t left = end - clock_boot_ms();
        if (find(node, tag) != NULL)
            return true;
        if (left < 0 || !receive(node, (int)left))
            return find(node, tag) != NULL;
    }
}

uint16_t rig_reply(int node, uint32_t tag, void *out, size_t size, size_t *ret_len)
{
    if (!rig_has_reply(node, tag, SEND_TIMEOUT_MS))
        return 0;
    struct kept *k = find(node, tag);
    uint16_t type = k->type;
    assert_true(k->len <= size);
    memcpy(out, k->data, k->len);
    *ret_len = k->len;
    free(k->data);
    *k = (struct kept){0};
    return type;
}

static int error_of(const uint8_t *p, size_t n)
{
    struct mon_error e;

    assert_int_equal(mon_error_decode(&e, p, n), 0);
    assert_true(e.message[0] != '\0');
    return e.code;
}

uint32_t rig_send_exec(int node, const char *id, uint32_t flags, const char *script, const struct mon_exec *more)
{
    static uint8_t spec[LIMIT_CHANNEL_MESSAGE / 2];
    static uint8_t out[LIMIT_CHANNEL_MESSAGE];
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    const char *envp[] = {"PATH=/usr/bin:/bin", NULL};
    struct exec_spec s = {.argc = 3, .argv = argv, .envc = 1, .envp = envp, .cwd = "", .user = "", .umask = 022};
    struct mon_exec m = more != NULL ? *more : (struct mon_exec){0};

    if (script[0] == '/') {         /* a program instead of a script */
        argv[0] = script;
        argv[1] = NULL;
        s.argc = 1;
    }
    assert_int_equal(exec_spec_encode(&s, spec, sizeof spec, &m.spec_len), 0);
    m.spec = spec;
    m.flags = flags;
    (void)snprintf(m.exec_id, sizeof m.exec_id, "%s", id);
    size_t n = mon_exec_encode(&m, out, sizeof out);
    assert_true(n > 0);
    return rig_send(node, MON_EXEC, out, n);
}

static int record_reply(int node, uint32_t tag, struct exec_record *ret)
{
    uint8_t out[2048];
    size_t n;
    uint16_t type = rig_reply(node, tag, out, sizeof out, &n);

    if (type == MON_ERROR)
        return error_of(out, n);
    assert_int_equal(type, MON_EXEC_R);
    assert_int_equal(exec_record_decode(ret, out, n), 0);
    return 0;
}

int rig_exec(int node, const char *id, uint32_t flags, const char *script, const struct mon_exec *more,
             struct exec_record *ret)
{
    return record_reply(node, rig_send_exec(node, id, flags, script, more), ret);
}

int rig_wait(int node, const char *id, uint32_t wait_ms, struct exec_record *ret)
{
    struct mon_wait m = {.wait_ms = wait_ms};
    uint8_t out[256];

    (void)snprintf(m.exec_id, sizeof m.exec_id, "%s", id);
    return record_reply(node, rig_send(node, MON_WAIT, out, mon_wait_encode(&m, out, sizeof out)), ret);
}

int rig_read(int node, const char *id, int stream, uint64_t offset, uint32_t wait_ms, struct mon_read_r *ret,
             uint8_t space[LIMIT_CHANNEL_INLINE])
{
    struct mon_read m = {.stream = (uint8_t)stream, .offset = offset, .max = LIMIT_READ_CHUNK, .wait_ms = wait_ms};
    uint8_t out[256];
    size_t n;

    (void)snprintf(m.exec_id, sizeof m.exec_id, "%s", id);
    uint32_t tag = rig_send(node, MON_READ, out, mon_read_encode(&m, out, sizeof out));
    uint16_t type = rig_reply(node, tag, space, LIMIT_CHANNEL_INLINE, &n);
    if (type == MON_ERROR)
        return error_of(space, n);
    assert_int_equal(type, MON_READ_R);
    assert_int_equal(mon_read_r_decode(ret, space, n), 0);
    return 0;
}

ssize_t rig_read_all(int node, const char *id, int stream, uint8_t *out, size_t size)
{
    static uint8_t space[LIMIT_CHANNEL_INLINE];
    struct mon_read_r r = {0};
    size_t n = 0;

    do {
        if (rig_read(node, id, stream, n, 5000, &r, space) != 0)
            return -1;
        assert_int_equal(r.offset, n);
        assert_true(r.len <= size - n);
        memcpy(out + n, r.data, r.len);
        n += r.len;
    } while (!r.eof);
    return (ssize_t)n;
}

int rig_stdin(int node, const char *id, uint64_t offset, const void *p, size_t n, bool eof,
              struct mon_stdin_r *ret)
{
    static uint8_t out[LIMIT_CHANNEL_INLINE];
    struct mon_stdin m = {.offset = offset, .eof = eof, .data = p, .len = n};
    size_t len;

    (void)snprintf(m.exec_id, sizeof m.exec_id, "%s", id);
    uint32_t tag = rig_send(node, MON_STDIN, out, mon_stdin_encode(&m, out, sizeof out));
    uint16_t type = rig_reply(node, tag, out, sizeof out, &len);
    if (type == MON_ERROR)
        return error_of(out, len);
    assert_int_equal(type, MON_STDIN_R);
    assert_int_equal(mon_stdin_r_decode(ret, out, len), 0);
    return 0;
}

int rig_simple(int node, enum mon_type type, const void *payload, size_t len)
{
    uint8_t out[1024];
    size_t n;
    uint16_t got = rig_reply(node, rig_send(node, type, payload, len), out, sizeof out, &n);

    if (got == MON_ERROR)
        return error_of(out, n);
    assert_int_equal(got, MON_OK);
    return 0;
}

int rig_status(int node, uint32_t wait_ms, struct sandbox_record *ret)
{
    struct mon_status m = {.wait_ms = wait_ms};
    uint8_t out[1024];
    size_t n;

    uint32_t tag = rig_send(node, MON_STATUS, out, mon_status_encode(&m, out, sizeof out));
    if (rig_reply(node, tag, out, sizeof out, &n) != MON_STATUS_R)
        return -1;
    return sandbox_record_decode(ret, out, n);
}

int rig_connect(struct rig *r)
{
    char path[128];
    int fd = -1;

    (void)snprintf(path, sizeof path, "%s/monitor.sock", r->dir);
    for (int i = 0; i < 200 && chan_connect(path, &fd) < 0; i++)
        (void)usleep(5000);
    return fd;
}
