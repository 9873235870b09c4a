/*
 * dump.c - everything of others that can be read, written to stdout; whoever started us looks for canaries in it
 *
 * In a sandbox it reads whatever it can. In the control it keeps to the places in which canaries lie, because that is
 * real root on somebody's machine: it must not read drivers' files or take messages that others wait for.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "escape.h"
#include "groups.h"

#define FILE_MAX (256 * 1024)
#define PROCESS_MAX (4 * 1024 * 1024)
#define DEPTH_MAX 6

extern char **environ;

static void put(const void *p, size_t n)
{
    (void)fwrite(p, 1, n, stdout);
    (void)fputc('\n', stdout);
}

static void title(const char *text)
{
    printf("\n== %s\n", text);
}

static void dump_fd(int fd)
{
    static char block[FILE_MAX];
    ssize_t n = pread(fd, block, sizeof block, 0);
    size_t total = 0;

    if (n < 0)
        n = read(fd, block, sizeof block);
    /* Files of /proc give a page or so at a time, and a mount table may be long. */
    for (; n > 0 && total < PROCESS_MAX; n = pread(fd, block, sizeof block, (off_t)total)) {
        (void)fwrite(block, 1, (size_t)n, stdout);
        total += (size_t)n;
    }
    (void)fputc('\n', stdout);
}

static void dump_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    title(path);
    if (fd < 0)
        return;
    dump_fd(fd);
    (void)close(fd);
}

static void dump_link(const char *path)
{
    char target[512];
    ssize_t n = readlink(path, target, sizeof target);

    if (n > 0)
        put(target, (size_t)n);
}

/* What a service says to whoever comes. */
static void greet(int fd, const void *a, socklen_t len)
{
    char text[256];

    if (fd >= 0 && (connect(fd, a, len) == 0 || errno == EINPROGRESS)) {
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        (void)send(fd, "?", 1, MSG_NOSIGNAL);
        if (poll(&pf, 1, 300) > 0) {
            ssize_t n = recv(fd, text, sizeof text, MSG_DONTWAIT);
            if (n > 0)
                put(text, (size_t)n);
        }
    }
    (void)close(fd);
}

static void greet_path(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    greet(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), &a, sizeof a);
}

static bool skipped(const char *path)
{
    static const char *const paths[] = {"/proc/kmsg", "/proc/kcore", "/proc/self", "/proc/thread-self", "/dev/zero",
                                        "/dev/random",
                                        "/dev/urandom", "/dev/full", "/dev/ptmx", "/dev/pts/ptmx"};

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (strcmp(path, paths[i]) == 0)
            return true;
    /* Processes have their own turn. */
    return strncmp(path, "/proc/", 6) == 0 && path[6] >= '0' && path[6] <= '9';
}

/* Names and contents below a directory. */
static void walk(const char *top, int depth)
{
    DIR *dir = opendir(top);
    const struct dirent *d;
    struct stat st;
    char path[700];

    title(top);
    while (dir != NULL && (d = readdir(dir)) != NULL) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", strcmp(top, "/") == 0 ? "" : top, d->d_name);
        put(d->d_name, strlen(d->d_name));
        if (skipped(path) || lstat(path, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
            walk(path, depth + 1);
        else if (S_ISREG(st.st_mode))
            dump_file(path);
        else if (S_ISLNK(st.st_mode))
            dump_link(path);
        else if (S_ISSOCK(st.st_mode))
            greet_path(path);
    }
    if (dir != NULL)
        (void)closedir(dir);
}

static void own_descriptors(void)
{
    char path[64];
    struct stat st;

    title("descriptors");
    for (int fd = 3; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        dump_link(path);
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
            dump_fd(fd);
    }
}

/* --- processes -------------------------------------------------------------------------------------------------------- */

static void memory(const char *pid)
{
    static char maps[FILE_MAX], block[FILE_MAX];
    char path[64];
    size_t total = 0;

    snprintf(path, sizeof path, "/proc/%s/maps", pid);
    if (read_text(path, maps, sizeof maps) <= 0)
        return;
    put(maps, strlen(maps));
    snprintf(path, sizeof path, "/proc/%s/mem", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (char *line = maps; fd >= 0 && line != NULL && total < PROCESS_MAX; line = strchr(line, '\n')) {
        unsigned long long from, to;
        char mode[8];
        line += *line == '\n';
        if (sscanf(line, "%llx-%llx %7s", &from, &to, mode) != 3 || mode[1] != 'w')
            continue;
        size_t want = to - from < sizeof block ? (size_t)(to - from) : sizeof block;
        ssize_t n = pread(fd, block, want, (off_t)from);
        if (n > 0) {
            put(block, (size_t)n);
            total += (size_t)n;
        }
    }
    if (fd >= 0)
        (void)close(fd);
}

static void links_of(const char *pid, const char *what, bool is_read)
{
    char dir_path[64], path[340], target[64];
    const struct dirent *d;

    snprintf(dir_path, sizeof dir_path, "/proc/%s/%s", pid, what);
    DIR *dir = opendir(dir_path);
    while (dir != NULL && (d = readdir(dir)) != NULL) {
        if (d->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", dir_path, d->d_name);
        dump_link(path);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        /* Pipes, sockets and terminals would lose what their owner waits for. */
        if (is_read && (n <= 0 || (target[0] == '/' && strncmp(target, "/dev/", 5) != 0)))
            dump_file(path);
    }
    if (dir != NULL)
        (void)closedir(dir);
}

static void fetched(const char *pid)
{
    int process = (int)syscall(SYS_pidfd_open, atoi(pid), 0);
    struct stat st;

    for (int i = 3; process >= 0 && i < 48; i++) {
        int fd = (int)syscall(SYS_pidfd_getfd, process, i, 0);
        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
            title("fetched");
            dump_fd(fd);
        }
        (void)close(fd);
    }
    if (process >= 0)
        (void)close(process);
}

static void process(const char *pid)
{
    static const char *const files[] = {"environ", "cmdline", "comm", "mountinfo", "cgroup", "status", "auxv", "limits"};
    static const char *const roots[] = {"root/tmp", "root/mnt", "root/dev/shm"};
    char path[64];

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "/proc/%s/%s", pid, files[i]);
        dump_file(path);
    }
    snprintf(path, sizeof path, "/proc/%s/cwd", pid);
    dump_link(path);
    memory(pid);
    links_of(pid, "fd", true);
    links_of(pid, "fdinfo", true);
    fetched(pid);
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        snprintf(path, sizeof path, "/proc/%s/%s", pid, roots[i]);
        walk(path, DEPTH_MAX - 2);
    }
}

static void processes(void)
{
    DIR *dir = opendir("/proc");
    const struct dirent *d;
    char own[16];

    snprintf(own, sizeof own, "%d", (int)getpid());
    while (dir != NULL && (d = readdir(dir)) != NULL)
        if (d->d_name[0] >= '0' && d->d_name[0] <= '9' && strcmp(d->d_name, own) != 0)
            process(d->d_name);
    if (dir != NULL)
        (void)closedir(dir);
}

/* --- communication ---------------------------------------------------------------------------------------------------- */

static void system_v(void)
{
    struct shmid_ds ds;
    struct msqid_ds qs;
    struct {
        long type;
        char text[4096];
    } m;

    title("System V");
    for (int i = 0; i < 256; i++) {
        int id = shmctl(i, SHM_STAT, &ds);
        char *at = id >= 0 ? shmat(id, NULL, SHM_RDONLY) : (char *)-1;
        if (at != (char *)-1) {
            put(at, ds.shm_segsz < FILE_MAX ? ds.shm_segsz : FILE_MAX);
            (void)shmdt(at);
        }
        id = msgctl(i, MSG_STAT, &qs);
        /* A copy, which takes nothing away. */
        ssize_t n = id >= 0 ? msgrcv(id, &m, sizeof m.text, 0, 040000 | IPC_NOWAIT) : -1;
        if (n > 0)
            put(m.text, (size_t)n);
    }
}

static void abstract_sockets(void)
{
    static char text[FILE_MAX];

    if (read_text("/proc/net/unix", text, sizeof text) <= 0)
        return;
    for (char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        char *at = strstr(line, " @"), *end = strchr(line, '\n');
        if (at == NULL || (end != NULL && at > end))
            continue;
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        size_t n = strcspn(at + 2, "\n");
        if (n > sizeof a.sun_path - 1)
            continue;
        memcpy(a.sun_path + 1, at + 2, n);
        greet(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), &a,
              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
    }
}

static void internet_sockets(const char *list, int type, unsigned wanted_state)
{
    static char text[FILE_MAX];

    if (read_text(list, text, sizeof text) <= 0)
        return;
    for (char *line = strchr(text, '\n'); line != NULL; line = strchr(line + 1, '\n')) {
        unsigned ip, port, state;
        if (sscanf(line, " %*u: %x:%x %*x:%*x %x", &ip, &port, &state) != 3 || state != wanted_state)
            continue;
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        greet(socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), &a, sizeof a);
    }
}

static void terminals(void)
{
    char path[32];

    title("terminals");
    for (int i = 0; i < 64; i++) {
        snprintf(path, sizeof path, "/dev/pts/%d", i);
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
            continue;
        dump_fd(fd);
        (void)close(fd);
    }
}

static void group_tree(void)
{
    char root[256];
    const struct dirent *d;

    if (groups_v2(root, sizeof root) < 0)
        return;
    DIR *dir = opendir(root);
    title(root);
    while (dir != NULL && (d = readdir(dir)) != NULL)
        put(d->d_name, strlen(d->d_name));
    if (dir != NULL)
        (void)closedir(dir);
}

int dump_main(bool is_control)
{
    static const char *const files[] = {
        "/proc/self/mountinfo", "/proc/self/cgroup", "/proc/keys", "/proc/locks", "/proc/net/unix", "/proc/net/tcp",
        "/proc/net/udp", "/proc/net/dev", "/proc/net/route", "/proc/sysvipc/shm", "/proc/sysvipc/msg",
    };
    static const char *const places[] = {"/tmp", "/mnt", "/dev/shm", "/dev/mqueue"};
    static const char *const inside[] = {"/proc", "/sys", "/dev", "/run", "/etc", "/root", "/home", "/var/tmp", "/opt", "/srv",
                                         "/__modal", "/var/lib/quicksand", "/run/quicksand"};
    struct utsname u;

    title("environment");
    for (char **e = environ; *e != NULL; e++)
        put(*e, strlen(*e));
    if (uname(&u) == 0)
        put(&u, sizeof u);
    own_descriptors();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        dump_file(files[i]);
    processes();
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        walk(places[i], 0);
    system_v();
    abstract_sockets();
    internet_sockets("/proc/net/tcp", SOCK_STREAM, 0x0a);
    internet_sockets("/proc/net/udp", SOCK_DGRAM, 0x07);
    terminals();
    group_tree();
    if (!is_control)
        for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++)
            walk(inside[i], 0);
    title("end of the dump");
    return fflush(stdout) == 0 ? 0 : 1;
}
