/*
 * role_child.c - a child of the spawner becomes a role
 */
#include "keeper/role_child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "ipc/channel.h"
#include "keeper/role_view.h"
#include "sys/caps.h"
#include "sys/detached_mount.h"
#include "sys/fd.h"
#include "sys/idmap.h"
#include "sys/process.h"

/* What unpacking an archive into a tree of any owner needs, in the role's own user namespace. */
#define IMAGE_CAPS \
    (CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FOWNER) | CAP_BIT(CAP_FSETID) | \
     CAP_BIT(CAP_SETFCAP))

static uint8_t space[LIMIT_CHANNEL_INLINE];

static void fail(enum role r, const char *step, int error) __attribute__((noreturn));

static void fail(enum role r, const char *step, int error)
{
    log_error("role", "name=%s step=%s errno=%d", role_name(r), step, error);
    _exit(127);
}

static int drop(enum role r)
{
    int error;

    if (r != ROLE_IMAGE)
        return caps_become_user(keeper.users[r].uid, keeper.users[r].gid);
    /* Root of a namespace that maps to ids of nobody. */
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return -errno;
    error = caps_limit(IMAGE_CAPS);
    if (error < 0)
        return error;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* No role writes core files, which would hold secrets, or has use for these kinds of memory. */
static void limit(void)
{
    static const int unused[] = {RLIMIT_CORE, RLIMIT_MSGQUEUE, RLIMIT_RTPRIO, RLIMIT_NICE};

    for (size_t i = 0; i < array_len(unused); i++)
        (void)setrlimit(unused[i], &(struct rlimit){0, 0});     /* lowering cannot fail */
}

void role_child_become(enum role r, pid_t spawner)
{
    char program[sizeof keeper.conf.lib_dir + 32], layers[sizeof keeper.conf.data_dir + 16];
    char *argv[6] = {program};
    char *const envp[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                          "LANG=C.UTF-8", NULL};
    int from[3], n = 0, argc = 1;

    snprintf(program, sizeof program, "%s/quicksand-%s", keeper.conf.lib_dir, role_name(r));
    if (keeper.conf_path[0] != '\0') {
        argv[argc++] = "--config";
        argv[argc++] = keeper.conf_path;
    }
    if (r == ROLE_IMAGE) {
        snprintf(layers, sizeof layers, "%s/layers", keeper.conf.data_dir);
        argv[argc++] = "--layers";
        argv[argc++] = layers;
    }
    int exe = open(program, O_RDONLY | O_CLOEXEC);
    if (exe < 0)
        fail(r, "open", errno);
    if (setpgid(0, 0) < 0 || chdir("/") < 0)
        fail(r, "group", errno);
    (void)fd_raise_limit(); /* connections are descriptors; with less, the role refuses sooner */
    if (dup2(keeper.null_fd, 0) < 0)
        fail(r, "stdin", errno);
    if (keeper.role_sock[r] >= 0)
        from[n++] = keeper.role_sock[r];
    if (keeper.role_tcp[r] >= 0)
        from[n++] = keeper.role_tcp[r];
    from[n++] = exe;
    /* Of the host's files only its own; the image role has left them already. */
    int error = r != ROLE_IMAGE && unshare(CLONE_NEWNS | CLONE_NEWIPC) < 0 ? -errno : 0;
    if (error == 0 && r != ROLE_IMAGE)
        error = role_view_enter(r, -1);
    if (error < 0)
        fail(r, "view", -error);
    limit();
    error = process_place_fds(from, n);
    if (error == 0)
        error = fd_set_cloexec(2 + n, true);
    if (error < 0)
        fail(r, "descriptors", -error);
    error = drop(r);
    if (error < 0)
        fail(r, "privileges", -error);
    /* After the change of user, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        fail(r, "pdeathsig", errno);
    if (getppid() != spawner)       /* it died before that took hold */
        _exit(1);
    error = process_exec(2 + n, argv, envp);
    fail(r, "exec", -error);
}

/* In the child: waits for its ids and the mount of the layers, and leaves the host's file tree. */
static int image_enter(int sync)
{
    struct chan_msg m;

    int r = chan_recv(sync, space, sizeof space, 0, &m);
    if (r <= 0 || m.nfds != 1)
        return r < 0 ? r : -EPIPE;
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        r = -errno;
    else
        r = role_view_enter(ROLE_IMAGE, m.fds[0]);
    chan_msg_done(&m);
    return r;
}

/* In the spawner: the child's ids, and the layers as a mount on which its ids are 0 to 65535. */
static int image_prepare(pid_t pid, int sync, int *ret_userns)
{
    int r = idmap_write(pid, image_range() << 16);

    if (r < 0)
        return r;
    auto_close int userns = idmap_open_userns(pid);
    if (userns < 0)
        return userns;
    auto_close int tree =
        mount_clone(keeper.data_fd, "layers", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, userns);
    if (tree < 0)
        return tree;
    r = chan_send(sync, 1, 0, NULL, 0, &tree, 1);
    if (r == 0)
        *ret_userns = take_fd(&userns);
    return r;
}

pid_t role_child_image(int *ret_userns)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    auto_close int ours = pair[0];
    auto_close int theirs = pair[1];
    pid_t pid = process_clone(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC, -1, NULL);
    if (pid < 0)
        return pid;
    if (pid == 0) {
        fd_close(&ours);
        int r = image_enter(theirs);
        if (r < 0)
            fail(ROLE_IMAGE, "namespaces", -r);
        return 0;
    }
    int r = image_prepare(pid, ours, ret_userns);
    if (r < 0) {
        log_error("role", "name=image step=ids errno=%d", -r);
        (void)kill(pid, SIGKILL); /* its end is reported like any other */
    }
    return pid;
}
