/*
 * victim.c - a process that others must not reach: it plants canaries all over itself and notices what is done to it
 *
 * One stands on the host, one in a neighbour sandbox, one in each control. It answers each line on its stdin with
 * "untouched" or what was done since, and ends with its stdin.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"
#include "plant.h"
#include "victim.h"

socklen_t victim_abstract(struct sockaddr_un *a, const char *token, const char *kind)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s-%s", token, kind);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

unsigned victim_port(const char *token)
{
    return 20000 + token_number(token) % 12000;
}

void canary(char *out, enum place place, const char *token)
{
    snprintf(out, CANARY_SIZE, "qsc-%02u-%.8s", (unsigned)place % 100, token + 4);
}

enum { IN_SIGNALS, IN_STDIN, IN_ABSTRACT, IN_DGRAM, IN_NAMED, IN_TCP, IN_UDP, IN_ABSTRACT_NAME, IN_COUNT };

struct victim {
    const char *token;
    struct pollfd in[IN_COUNT];
    char dir[64];                       /* the files of ours */
    int shm, msg;                       /* System V ids; -1 = none */
    mqd_t queue;
    char *memory;
    struct rlimit core;
    char done[512];                     /* what was done to us */
};

static void note(struct victim *v, const char *what)
{
    size_t n = strlen(v->done);

    if (strstr(v->done, what) == NULL)
        snprintf(v->done + n, sizeof v->done - n, "%s%s", n > 0 ? ", " : "", what);
}

static void put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        (void)fchmod(fd, 0666);
        (void)close(fd);
    }
}

static int listener(const void *a, socklen_t len, int type)
{
    int fd = socket(((const struct sockaddr *)a)->sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && (bind(fd, a, len) < 0 || (type == SOCK_STREAM && listen(fd, 16) < 0))) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

static void plant_sockets(struct victim *v)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)victim_port(v->token))};
    struct sockaddr_un un;
    char name[CANARY_SIZE];

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v->in[IN_TCP].fd = listener(&in, sizeof in, SOCK_STREAM);
    v->in[IN_UDP].fd = listener(&in, sizeof in, SOCK_DGRAM);
    socklen_t len = victim_abstract(&un, v->token, "stream");
    v->in[IN_ABSTRACT].fd = listener(&un, len, SOCK_STREAM);
    len = victim_abstract(&un, v->token, "dgram");
    v->in[IN_DGRAM].fd = listener(&un, len, SOCK_DGRAM);
    un = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(un.sun_path, sizeof un.sun_path, "%s/socket", v->dir);
    v->in[IN_NAMED].fd = listener(&un, sizeof un, SOCK_STREAM);
    canary(name, PLACE_ABSTRACT_NAME, v->token);
    un = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(un.sun_path + 1, name, strlen(name));
    v->in[IN_ABSTRACT_NAME].fd =
        listener(&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)), SOCK_DGRAM);
}

static void plant_files(struct victim *v)
{
    char path[128], name[CANARY_SIZE];

    (void)mkdir("/tmp", 01777);
    if (mkdir(v->dir, 0777) < 0)
        return;
    (void)chmod(v->dir, 0777);
    canary(name, PLACE_TMP_FILE, v->token);
    snprintf(path, sizeof path, "%s/secret", v->dir);
    put_file(path, name);
    canary(name, PLACE_SHM_FILE, v->token);
    snprintf(path, sizeof path, "/dev/shm/%s", v->token);
    put_file(path, name);
    canary(name, PLACE_OPEN_FILE, v->token);
    snprintf(path, sizeof path, "%s/gone", v->dir);
    put_file(path, name);
    (void)!open(path, O_RDWR | O_CLOEXEC);
    (void)unlink(path);
    /* A directory that is named by a working directory alone. */
    canary(name, PLACE_CWD, v->token);
    snprintf(path, sizeof path, "%s/%s", v->dir, name);
    (void)mkdir(path, 0700);
    if (chdir(path) == 0)
        (void)rmdir(path);
    canary(name, PLACE_MAPPED_NAME, v->token);
    snprintf(path, sizeof path, "%s/%s", v->dir, name);
    put_file(path, "mapped");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    (void)unlink(path);
}

static void plant_memory(struct victim *v)
{
    char name[CANARY_SIZE];

    v->memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    canary(v->memory, PLACE_MEMORY, v->token);
    /* A file in memory that is reached by its descriptor, and one that is told by its name. */
    canary(name, PLACE_FETCHED_FD, v->token);
    int fd = memfd_create("held", MFD_CLOEXEC);
    (void)!write(fd, name, strlen(name));
    canary(name, PLACE_FD_NAME, v->token);
    (void)memfd_create(name, MFD_CLOEXEC);
    /* An eventfd's count is in fdinfo, in hexadecimal. */
    (void)syscall(SYS_eventfd2, 0x51000000u | (token_number(v->token) & 0xffffffu), O_CLOEXEC);
}

static void plant_ipc(struct victim *v)
{
    struct {
        long type;
        char text[CANARY_SIZE];
    } m = {1, ""};
    char name[CANARY_SIZE + 1] = "/";
    key_t key = (key_t)token_number(v->token);

    v->shm = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666);
    char *at = v->shm >= 0 ? shmat(v->shm, NULL, 0) : (char *)-1;
    if (at != (char *)-1) {
        canary(at, PLACE_SYSV_SHM, v->token);
        (void)shmdt(at);
    }
    v->msg = msgget(key, IPC_CREAT | IPC_EXCL | 0666);
    canary(m.text, PLACE_SYSV_MSG, v->token);
    if (v->msg >= 0)
        (void)msgsnd(v->msg, &m, sizeof m.text, IPC_NOWAIT);
    canary(name + 1, PLACE_MQUEUE, v->token);
    v->queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0666, NULL);
    char key_name[CANARY_SIZE];
    canary(key_name, PLACE_KEY, v->token);
    (void)syscall(SYS_add_key, "user", key_name, "x", 1, -3);
}

/* A terminal with input that nobody has read. */
static void plant_terminal(struct victim *v)
{
    char name[CANARY_SIZE + 2];
    int unlock = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

    canary(name, PLACE_TERMINAL, v->token);
    name[strlen(name) + 1] = '\0';
    name[strlen(name)] = '\n';
    if (master >= 0 && ioctl(master, 0x40045431 /* TIOCSPTLCK */, &unlock) == 0)
        (void)!write(master, name, strlen(name));
}

/* In mounts of its own, so that only its /proc/PID/root leads there. Where we may not, there is none. */
static void plant_root(struct victim *v)
{
    char name[CANARY_SIZE], path[64];

    if (syscall(SYS_unshare, 0x20000) < 0 || syscall(SYS_mount, NULL, "/", NULL, (1 << 18) | 16384, NULL) < 0 ||
        syscall(SYS_mount, v->token, "/mnt", "tmpfs", 0, NULL) < 0)
        return;
    canary(name, PLACE_PROCESS_ROOT, v->token);
    snprintf(path, sizeof path, "/mnt/%s", v->token);
    put_file(path, name);
}

static void answer(struct victim *v, int which, enum place place, const char *what)
{
    char text[CANARY_SIZE], got[64];
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int fd = v->in[which].fd;

    canary(text, place, v->token);
    note(v, what);
    if (which == IN_UDP || which == IN_DGRAM || which == IN_ABSTRACT_NAME) {
        if (recvfrom(fd, got, sizeof got, MSG_DONTWAIT, (struct sockaddr *)&from, &len) >= 0 && which == IN_UDP)
            (void)sendto(fd, text, strlen(text), MSG_DONTWAIT, (struct sockaddr *)&from, len);
        return;
    }
    int s = accept(fd, NULL, NULL);
    if (s >= 0) {
        (void)send(s, text, strlen(text), MSG_NOSIGNAL);
        (void)close(s);
    }
}

static void look(struct victim *v)
{
    char path[128], text[4096], name[CANARY_SIZE];
    struct rlimit core;
    cpu_set_t set;

    canary(name, PLACE_TMP_FILE, v->token);
    snprintf(path, sizeof path, "%s/secret", v->dir);
    if (read_text(path, text, sizeof text) < 0 || strcmp(text, name) != 0)
        note(v, "file changed");
    canary(name, PLACE_MEMORY, v->token);
    if (strcmp(v->memory, name) != 0)
        note(v, "memory changed");
    if (read_text("/proc/self/status", text, sizeof text) > 0 && strstr(text, "TracerPid:\t0\n") == NULL)
        note(v, "traced");
    if (getrlimit(RLIMIT_CORE, &core) == 0 && memcmp(&core, &v->core, sizeof core) != 0)
        note(v, "limit changed");
    if (getpriority(PRIO_PROCESS, 0) != 0)
        note(v, "priority changed");
    if (syscall(SYS_sched_getscheduler, 0) != SCHED_OTHER)
        note(v, "scheduler changed");
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
        note(v, "affinity changed");
    struct shmid_ds ds;
    if (v->shm >= 0 && shmctl(v->shm, IPC_STAT, &ds) < 0)
        note(v, "shared memory removed");
    struct msqid_ds qs;
    if (v->msg >= 0 && (msgctl(v->msg, IPC_STAT, &qs) < 0 || qs.msg_qnum != 1))
        note(v, "message taken");
}

static void clean(struct victim *v)
{
    char path[128], name[CANARY_SIZE + 1] = "/";

    if (v->shm >= 0)
        (void)shmctl(v->shm, IPC_RMID, NULL);
    if (v->msg >= 0)
        (void)msgctl(v->msg, IPC_RMID, NULL);
    canary(name + 1, PLACE_MQUEUE, v->token);
    (void)mq_unlink(name);
    snprintf(path, sizeof path, "/dev/shm/%s", v->token);
    (void)unlink(path);
    snprintf(path, sizeof path, "%s/secret", v->dir);
    (void)unlink(path);
    snprintf(path, sizeof path, "%s/socket", v->dir);
    (void)unlink(path);
    (void)rmdir(v->dir);
}

/* Executed a second time, so that environment, arguments and name carry canaries too. */
static int dress(const char *token)
{
    char value[CANARY_SIZE], text[64], argument[CANARY_SIZE], own[CANARY_SIZE];

    canary(value, PLACE_ENVIRON, token);
    canary(argument, PLACE_CMDLINE, token);
    canary(own, PLACE_COMM, token);
    snprintf(text, sizeof text, "QSE_SECRET=%s", value);
    char *const argv[] = {"quicksand-escape", "victim", (char *)(uintptr_t)token, argument, NULL};
    char *const envp[] = {text, NULL};
    (void)execve("/proc/self/exe", argv, envp);
    return 1;
}

int victim_main(const char *token)
{
    static struct victim v;
    struct signalfd_siginfo si;
    char name[CANARY_SIZE], line[64], copy[TOKEN_SIZE];
    sigset_t all;

    snprintf(copy, sizeof copy, "%s", token);
    if (getenv("QSE_SECRET") == NULL)
        return dress(copy);
    v.token = copy;
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    snprintf(v.dir, sizeof v.dir, "/tmp/%s.victim", copy);
    canary(name, PLACE_COMM, copy);
    (void)prctl(PR_SET_NAME, name);
    for (int i = 0; i < IN_COUNT; i++)
        v.in[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    v.in[IN_SIGNALS].fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    v.in[IN_STDIN].fd = 0;
    plant_files(&v);
    plant_memory(&v);
    plant_sockets(&v);
    plant_ipc(&v);
    plant_terminal(&v);
    plant_root(&v);
    (void)getrlimit(RLIMIT_CORE, &v.core);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    for (;;) {
        if (poll(v.in, IN_COUNT, -1) < 0 && errno != EINTR)
            return 1;
        while (read(v.in[IN_SIGNALS].fd, &si, sizeof si) == sizeof si)
            if (si.ssi_signo != SIGCHLD && si.ssi_signo != SIGPIPE) {
                snprintf(line, sizeof line, "signal %u", si.ssi_signo);
                note(&v, line);
            }
        if (v.in[IN_TCP].revents != 0)
            answer(&v, IN_TCP, PLACE_TCP_BANNER, "TCP connection");
        if (v.in[IN_UDP].revents != 0)
            answer(&v, IN_UDP, PLACE_UDP_ANSWER, "datagram");
        if (v.in[IN_ABSTRACT].revents != 0)
            answer(&v, IN_ABSTRACT, PLACE_ABSTRACT_BANNER, "abstract connection");
        if (v.in[IN_NAMED].revents != 0)
            answer(&v, IN_NAMED, PLACE_SOCKET_BANNER, "socket connection");
        if (v.in[IN_DGRAM].revents != 0)
            answer(&v, IN_DGRAM, PLACE_ABSTRACT_NAME, "abstract datagram");
        if (v.in[IN_ABSTRACT_NAME].revents != 0)
            answer(&v, IN_ABSTRACT_NAME, PLACE_ABSTRACT_NAME, "abstract datagram");
        if (v.in[IN_STDIN].revents == 0)
            continue;
        ssize_t n = read(0, line, sizeof line);
        look(&v);
        printf("%s\n", v.done[0] == '\0' ? "untouched" : v.done);
        fflush(stdout);
        v.done[0] = '\0';
        if (n <= 0)
            break;
    }
    clean(&v);
    return 0;
}

pid_t victim_start(const char *token, int *ret_ask)
{
    int pair[2];
    char line[64];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        /* A life of its own, as a process elsewhere on the host has. */
        (void)setsid();
        if (dup2(pair[1], 0) < 0 || dup2(pair[1], 1) < 0)
            _exit(1);
        (void)execl("/proc/self/exe", "quicksand-escape", "victim", token, (char *)NULL);
        _exit(1);
    }
    (void)close(pair[1]);
    *ret_ask = pair[0];
    return pid > 0 && read(pair[0], line, sizeof line) > 5 ? pid : -1;
}

bool victim_ask(int ask)
{
    char text[600];

    if (write(ask, "?\n", 2) != 2)
        return true;
    ssize_t n = read(ask, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return strncmp(text, "untouched", 9) != 0;
}
