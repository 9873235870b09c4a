/*
 * control.c - the control: an attempt as real root, with nothing of ours in its way
 *
 * Each gets namespaces of its own for mounts, processes, network, IPC and host name, which go when it has run;
 * there is no user namespace, no filter, and no mask. The victim lives in the same namespaces.
 */
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"
#include "groups.h"
#include "plant.h"

#define PATIENCE_MS 40000

static bool has_cap(unsigned cap)
{
    char text[4096];
    unsigned long long mask = 0;

    if (read_text("/proc/self/status", text, sizeof text) < 0)
        return false;
    const char *at = strstr(text, "\nCapEff:");
    if (at != NULL)
        (void)sscanf(at + 8, "%llx", &mask);
    return (mask >> cap & 1) != 0;
}

static int loopback_up(void)
{
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) < 0)
        return -1;
    (void)close(fd);
    return 0;
}

/* Private copies of the places in which attempts and canaries lie; nothing of this is seen outside. */
static int places_make(void)
{
    static const char *const tmpfs[] = {"/tmp", "/mnt", "/dev/shm", "/dev/mqueue"};

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (mount("tmpfs", tmpfs[i], "tmpfs", 0, "mode=1777") < 0)
            return -1;
    /* A mount point that the machine may lack is one canary less, which its attempt will say. */
    (void)mount("mqueue", tmpfs[3], "mqueue", 0, NULL);
    if (mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620") < 0)
        return -1;
    (void)mount("/dev/pts/ptmx", "/dev/ptmx", NULL, MS_BIND, NULL);
    return loopback_up();
}

/* PID 1 of the throw-away namespaces. */
static int namespaces_enter(struct ctx *c, const char *token)
{
    *c = (struct ctx){.is_control = true, .ask = -1};
    snprintf(c->token, sizeof c->token, "%s", token);
    snprintf(c->scratch, sizeof c->scratch, "/tmp/%s", token);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || setsid() < 0 || places_make() < 0 || mkdir(c->scratch, 0755) < 0)
        return -1;
    /* Keys of its own, which end with it. */
    (void)syscall(SYS_keyctl, 1, NULL);
    return 0;
}

static void say(int fd, const char *text)
{
    (void)!write(fd, text, strlen(text));
}

static void attempt_child(const struct attempt *a, int out)
{
    char token[TOKEN_SIZE], text[64];
    struct ctx c;

    snprintf(token, sizeof token, "qse-%08x", token_number(a->name) ^ (uint32_t)getppid());
    if (namespaces_enter(&c, token) < 0) {
        snprintf(text, sizeof text, "no-namespaces-%s", outcome_name(-errno));
        say(out, text);
        return;
    }
    c.victim = c.init = victim_start(token, &c.ask);
    if (c.victim < 0) {
        say(out, "no-victim");
        return;
    }
    attempt_run(a, &c, text, sizeof text);
    say(out, text);
}

/* Runs fn as PID 1 of new namespaces; its wait status. */
static int in_namespaces(void (*fn)(const void *arg, int out), const void *arg, int out)
{
    int status = 0;

    fflush(NULL);
    pid_t outer = fork();
    if (outer == 0) {
        if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
            _exit(99);
        pid_t pid = fork();
        if (pid == 0) {
            fn(arg, out);
            _exit(0);
        }
        if (pid < 0)
            _exit(98);
        (void)close(out);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        _exit(WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status));
    }
    (void)close(out);
    if (outer < 0)
        return -1;
    while (waitpid(outer, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void attempt_in(const void *arg, int out)
{
    attempt_child(arg, out);
}

void control_run(const struct attempt *a, char *out, size_t size)
{
    int fds[2];

#if !defined(__x86_64__)
    if ((a->flags & NEEDS_X86) != 0) {
        snprintf(out, size, "skip: another architecture");
        return;
    }
#endif
    if ((a->flags & NEEDS_SYS_RESOURCE) != 0 && !has_cap(24)) {
        snprintf(out, size, "skip: no CAP_SYS_RESOURCE here");
        return;
    }
    if (pipe2(fds, O_CLOEXEC) < 0) {
        snprintf(out, size, "no-pipe");
        return;
    }
    int status = in_namespaces(attempt_in, a, fds[1]);
    ssize_t n = read(fds[0], out, size - 1);
    (void)close(fds[0]);
    out[n > 0 ? n : 0] = '\0';
    groups_sweep();
    if ((a->flags & ENDS_NAMESPACE) != 0 && (status == 100 + SIGHUP || status == 100 + SIGINT))
        snprintf(out, size, "ok");
    else if (n <= 0)
        snprintf(out, size, "died-%d", status);
}

static void dump_in(const void *arg, int out)
{
    const char *token = arg;
    struct ctx c;
    int ask;

    (void)close(out);
    if (namespaces_enter(&c, token) < 0 || plant_around(token) < 0 || victim_start(token, &ask) < 0 ||
        fcntl(ask, F_SETFD, 0) < 0) {       /* the victim lives as long as somebody may ask it */
        fprintf(stderr, "quicksand-escape: the control cannot be set up: %s\n", outcome_name(-errno));
        _exit(1);
    }
    /* Executed, because that is what shows which descriptors and variables come along. */
    (void)execl("/proc/self/exe", "quicksand-escape", "dump", "control", (char *)NULL);
    _exit(1);
}

int control_dump(const char *token)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int status = in_namespaces(dump_in, token, null);

    groups_sweep();
    return status;
}
