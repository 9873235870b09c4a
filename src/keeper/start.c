/*
 * start.c - directories, users, programs and sockets
 *
 * Called by main.c in this order, before anything is accepted.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "keeper/keeper.h"
#include "sys/fd.h"

#define LOCK_TRIES 100 /* of 50 ms: the processes of a killed keeper end within that */

int start_users(struct err *e)
{
    const struct {
        const char *key, *name;
    } rows[ROLES] = {
        [ROLE_CONTROL] = {"user_control", keeper.conf.user_control},
        [ROLE_NODE] = {"user_node", keeper.conf.user_node},
        [ROLE_EGRESS] = {"user_egress", keeper.conf.user_egress},
        [ROLE_IMAGE] = {"user_image", keeper.conf.user_image},
    };

    for (int i = 0; i < ROLES; i++) {
        int r = user_lookup(rows[i].name, &keeper.users[i]);
        if (r == -ENOENT)
            return err_param(
                e, ERR_INVALID, rows[i].key,
                "%s is '%s', but there is no such user; create it, or set %s to another name or number",
                rows[i].key, rows[i].name, rows[i].key);
        if (r < 0)
            return err_sys(e, -r, "%s: look up user '%s'", rows[i].key, rows[i].name);
        if (keeper.users[i].uid == 0)
            return err_param(e, ERR_INVALID, rows[i].key, "%s is root, which no role may be",
                             rows[i].key);
    }
    return 0;
}

static int make_parents(const char *path, struct err *e)
{
    char part[sizeof keeper.conf.data_dir];

    for (size_t i = 1; path[i] != '\0'; i++) {
        if (path[i] != '/')
            continue;
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return err_sys(e, errno, "make %s", part);
    }
    return 0;
}

/* Makes `name` if it is missing, and sets owner and mode whatever they were. */
static int directory(int at, const char *name, uint32_t uid, uint32_t gid, mode_t mode, int *ret_fd,
                     struct err *e)
{
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make directory %s", name);
    auto_close int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0)
        return err_sys(e, errno, "set up directory %s", name);
    if (ret_fd != NULL)
        *ret_fd = take_fd(&fd);
    return 0;
}

static int take_lock(struct err *e)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};

    keeper.lock_fd =
        openat(keeper.data_fd, "keeper.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (keeper.lock_fd < 0)
        return err_sys(e, errno, "open %s/keeper.lock", keeper.conf.data_dir);
    for (int i = 0; flock(keeper.lock_fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK)
            return err_sys(e, errno, "lock %s/keeper.lock", keeper.conf.data_dir);
        if (i == LOCK_TRIES)
            return err_set(e, ERR_CONFLICT, "another quicksandd runs on %s", keeper.conf.data_dir);
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

int start_directories(struct err *e)
{
    const struct user *u = keeper.users;
    uint32_t image = image_range() << 16;
    const char *data = keeper.conf.data_dir, *run = keeper.conf.run_dir;
    int d;

    (void)umask(022);
    if (data[0] != '/' || run[0] != '/')
        return err_set(e, ERR_INVALID, "data_dir and run_dir must be absolute paths");
    if (make_parents(data, e) < 0 || make_parents(run, e) < 0)
        return -1;
    /* Others may pass through data_dir to what is theirs in it, and see nothing of it. */
    if (directory(AT_FDCWD, data, 0, 0, 0711, &keeper.data_fd, e) < 0 ||
        directory(AT_FDCWD, run, 0, 0, 0755, NULL, e) < 0 || take_lock(e) < 0)
        return -1;
    d = keeper.data_fd;
    /* Base layers hold setuid programs of strangers: no user of the host may reach them. */
    if (directory(d, "layers", 0, 0, 0700, &keeper.layers_fd, e) < 0 ||
        directory(keeper.layers_fd, ".staging", 0, 0, 0700, NULL, e) < 0 ||
        directory(keeper.layers_fd, ".trash", 0, 0, 0700, NULL, e) < 0 ||
        directory(d, "keeper", 0, 0, 0700, &keeper.ledger_fd, e) < 0 ||
        directory(d, "scaffold", 0, 0, 0700, NULL, e) < 0 ||
        directory(d, "run", 0, u[ROLE_NODE].gid, 0750, &keeper.runs_fd, e) < 0 ||
        directory(d, "control", u[ROLE_CONTROL].uid, u[ROLE_CONTROL].gid, 0700, NULL, e) < 0 ||
        directory(d, "node", u[ROLE_NODE].uid, u[ROLE_NODE].gid, 0700, NULL, e) < 0 ||
        directory(d, "egress", u[ROLE_EGRESS].uid, u[ROLE_EGRESS].gid, 0700, NULL, e) < 0 ||
        directory(d, "image", image, image, 0700, NULL, e) < 0)
        return -1;
    /* Not by directory(): once it is mounted, mode and owner are those of the file system's root. */
    if (mkdirat(d, "trees", 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make directory trees");
    return 0;
}

static int program(const char *name, int *ret_fd, struct err *e)
{
    char path[sizeof keeper.conf.lib_dir + 32];

    snprintf(path, sizeof path, "%s/%s", keeper.conf.lib_dir, name);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(e, errno, "open %s", path) : 0;
}

int start_programs(struct err *e)
{
    ssize_t n = fd_read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", keeper.boot_id,
                           sizeof keeper.boot_id);

    if (n < 0)
        return err_sys(e, (int)-n, "read the boot id");
    keeper.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    keeper.meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (keeper.null_fd < 0 || keeper.meminfo_fd < 0)
        return err_sys(e, errno, "open /dev/null and /proc/meminfo");
    keeper.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (program("quicksand-init", &keeper.init_exe, e) < 0)
        return -1;
    return program("quicksand-monitor", &keeper.monitor_exe, e);
}

/* The socket is closed to all until it has its owner. */
static int listen_on(const char *name, int type, uint32_t gid, int *ret_fd, struct err *e)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};

    if (snprintf(sa.sun_path, sizeof sa.sun_path, "%s/%s", keeper.conf.run_dir, name) >=
        (int)sizeof sa.sun_path)
        return err_set(e, ERR_INVALID, "run_dir is too long for the path of a socket");
    auto_close int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "make socket %s", sa.sun_path);
    if (unlink(sa.sun_path) < 0 && errno != ENOENT)
        return err_sys(e, errno, "remove stale %s", sa.sun_path);
    mode_t old = umask(0777);
    int r = bind(fd, (struct sockaddr *)&sa, sizeof sa);
    (void)umask(old);
    if (r < 0)
        return err_sys(e, errno, "bind %s", sa.sun_path);
    if (lchown(sa.sun_path, 0, gid) < 0 || chmod(sa.sun_path, 0660) < 0 || listen(fd, 4096) < 0)
        return err_sys(e, errno, "open %s", sa.sun_path);
    *ret_fd = take_fd(&fd);
    return 0;
}

/* "127.0.0.1:7070" or "[::1]:7070". */
static int tcp_address(const char *text, struct sockaddr_storage *ret, socklen_t *ret_len)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    const char *colon = strrchr(text, ':');
    char host[INET6_ADDRSTRLEN];
    char *end;

    if (colon == NULL)
        return -EINVAL;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port > UINT16_MAX)
        return -EINVAL;
    bool is_v6 = text[0] == '[' && colon - text > 2 && colon[-1] == ']';
    int len = (int)(colon - text) - (is_v6 ? 2 : 0);
    if (len >= (int)sizeof host)
        return -EINVAL;
    (void)snprintf(host, sizeof host, "%.*s", len, text + (is_v6 ? 1 : 0));
    *ret = (struct sockaddr_storage){.ss_family = is_v6 ? AF_INET6 : AF_INET};
    *ret_len = is_v6 ? sizeof *v6 : sizeof *v4;
    if (is_v6)
        v6->sin6_port = htons((uint16_t)port);
    else
        v4->sin_port = htons((uint16_t)port);
    return inet_pton(ret->ss_family, host, is_v6 ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr) == 1
               ? 0
               : -EINVAL;
}

/*
 * The listener of a role's clients, so that they wait in its queue while the role restarts. What is no numeric address, or cannot
 * be had now, is left to the role, which says why.
 */
static int listen_tcp(const char *address)
{
    struct sockaddr_storage sa;
    socklen_t len;
    int on = 1;

    if (tcp_address(address, &sa, &len) < 0)
        return -1;
    auto_close int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (sa.ss_family == AF_INET6) {
        int v6only = !IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)&sa)->sin6_addr);
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only);
    }
    if (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, SOMAXCONN) < 0) {
        log_warn("listen", "address=%s errno=%d", address, errno);
        return -1;
    }
    return take_fd(&fd);
}

int start_sockets(struct err *e)
{
    uint32_t control = keeper.users[ROLE_CONTROL].gid, node = keeper.users[ROLE_NODE].gid;

    if (listen_on("keeper.sock", SOCK_SEQPACKET, node, &keeper.keeper_sock, e) < 0 ||
        listen_on("node.sock", SOCK_STREAM, control, &keeper.role_sock[ROLE_NODE], e) < 0 ||
        listen_on("egress.sock", SOCK_SEQPACKET, node, &keeper.role_sock[ROLE_EGRESS], e) < 0 ||
        listen_on("image.sock", SOCK_SEQPACKET, node, &keeper.role_sock[ROLE_IMAGE], e) < 0)
        return -1;
    keeper.role_tcp[ROLE_CONTROL] = listen_tcp(keeper.conf.listen);
    keeper.role_tcp[ROLE_NODE] = listen_tcp(keeper.conf.router_listen);
    return 0;
}
