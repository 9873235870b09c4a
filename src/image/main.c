/*
 * main.c - the image role: pulls images and unpacks archives of strangers into layers
 *
 * Usage: quicksand-image [--config FILE] --layers DIR, with descriptor 3 a listening SEQPACKET socket.
 * Started by the keeper as root of a user namespace of its own, with DIR a mount that maps ids to that namespace, so that
 * owners and file capabilities can be set there and mean nothing outside. Who may connect is settled by the mode of the socket:
 * seen from this namespace every peer has the same overflow id.
 *
 * The parent never reads a byte of a request. It forks a child a connection, and answers for one that died.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/err.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"
#include "image/job.h"
#include "image/stale.h"
#include "json/json.h"
#include "sys/caps.h"
#include "sys/fd.h"
#include "sys/rmtree.h"
#include "sys/seccomp_role.h"

#define LISTENER 3
#define ACCEPT_PAUSE_MS 100
#define JOBS_MAX 8                  /* at once; more wait in the backlog */
#define JOB_MEMORY (1ULL << 30)     /* address space of a child: an xz dictionary may ask for anything */

struct child {
    pid_t pid;                      /* 0 = free */
    int conn;                       /* the job's, kept to answer if the child cannot */
    char name[sizeof((struct job *)0)->name];
};

struct role {
    const struct conf *conf;
    int layers;
    int signals;
    int alive[2];                   /* children hold the read end; ours to write closes with us */
    struct child children[JOBS_MAX];
    bool stopping;
};

static int usage(void)
{
    log_error("image.usage", "text=%s", "quicksand-image_[--config_FILE]_--layers_DIR");
    return 2;
}

static int open_layers(struct role *role, const char *path, struct err *e)
{
    role->layers = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (role->layers < 0)
        return err_sys(e, errno, "open %s", path);
    if (mkdirat(role->layers, STAGING, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make %s/%s", path, STAGING);
    int r = rmtree_inside(role->layers, STAGING);
    if (r < 0)
        return err_sys(e, -r, "remove what is stale in %s/%s", path, STAGING);
    stale_drop(role->layers);
    return 0;
}

static int open_signals(struct role *role, struct err *e)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_sys(e, errno, "block signals");
    role->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (role->signals < 0)
        return err_sys(e, errno, "signalfd");
    return 0;
}

static int lower_privileges(struct err *e)
{
    int r = caps_limit(CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FOWNER) |
                       CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_SETFCAP));

    if (r < 0)
        return err_sys(e, -r, "drop capabilities");
    /* The network is for the fetching process of a pull, and threads are for its look-ups of names; every other process takes
     * both away from itself before it reads anything (confine.c, pull.c). */
    return seccomp_role_install(SECCOMP_BASE | SECCOMP_IO | SECCOMP_UNIX | SECCOMP_INET | SECCOMP_READ_FILES |
                                    SECCOMP_WRITE_FILES | SECCOMP_MEMFD | SECCOMP_CHILDREN | SECCOMP_THREADS |
                                    SECCOMP_TREE | SECCOMP_NARROW,
                                e);
}

/* Two hundred layers that are read as one tree are two hundred descriptors for every level of it. */
static void allow_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void limit_memory(void)
{
    /* A sanitizer reserves terabytes of address space. */
#ifndef __SANITIZE_ADDRESS__
    struct rlimit limit = {JOB_MEMORY, JOB_MEMORY};

    (void)setrlimit(RLIMIT_AS, &limit);
#endif
}

static void run_child(struct role *role, struct child *child) __attribute__((noreturn));
static void run_child(struct role *role, struct child *child)
{
    struct job job = {.conf = role->conf, .conn = child->conn, .layers = role->layers, .alive = role->alive[0]};

    memcpy(job.name, child->name, sizeof job.name);
    fd_close(&role->alive[1]);
    fd_close(&role->signals);
    for (size_t i = 0; i < JOBS_MAX; i++)
        if (role->children[i].pid > 0)
            fd_close(&role->children[i].conn);
    limit_memory();
    allow_files();
    _exit(job_run(&job));
}

static struct child *free_child(struct role *role)
{
    for (size_t i = 0; i < JOBS_MAX; i++)
        if (role->children[i].pid == 0)
            return &role->children[i];
    return NULL;
}

static void accept_job(struct role *role, struct child *child)
{
    char id[ID_SIZE];
    int conn = accept4(LISTENER, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (conn < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            log_warn("image.accept", "error=%d", errno);
            (void)poll(NULL, 0, ACCEPT_PAUSE_MS);   /* out of descriptors: it would be ready again at once */
        }
        return;
    }
    id_make(id, "");
    (void)snprintf(child->name, sizeof child->name, "%s", id);
    child->conn = conn;
    pid_t pid = fork();
    if (pid == 0)
        run_child(role, child);
    if (pid < 0) {
        struct err e = {0};
        (void)err_sys(&e, errno, "start a job");
        job_send_error(conn, &e);
        fd_close(&child->conn);
        return;
    }
    child->pid = pid;
}

static void job_ended(struct role *role, struct child *child, int status)
{
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        struct err e = {0};
        (void)err_set(&e, ERR_INTERNAL, "the process of the job died (status %d)", status);
        log_error("image.job_died", "job=%s status=%d", child->name, status);
        int staging = openat(role->layers, STAGING, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = staging < 0 ? -errno : rmtree(staging, child->name);
        if (r < 0)
            log_warn("image.staging_left", "name=%s error=%d", child->name, -r);
        fd_close(&staging);
        job_send_error(child->conn, &e);
    }
    fd_close(&child->conn);
    child->pid = 0;
}

static void on_signals(struct role *role)
{
    struct signalfd_siginfo info;
    int status;

    while (read(role->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD)
            role->stopping = true;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (size_t i = 0; i < JOBS_MAX; i++)
            if (role->children[i].pid == pid)
                job_ended(role, &role->children[i], status);
}

static int serve(struct role *role)
{
    while (!role->stopping) {
        struct child *child = free_child(role);
        struct pollfd p[2] = {{.fd = role->signals, .events = POLLIN},
                              {.fd = child != NULL ? LISTENER : -1, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) {
            log_error("image.poll", "error=%d", errno);
            return 1;
        }
        if (p[0].revents != 0)
            on_signals(role);
        if (child != NULL && child->pid == 0 && p[1].revents != 0)
            accept_job(role, child);
    }
    /* Children see the end of `alive` and take their staging with them. */
    return 0;
}

int main(int argc, char **argv)
{
    struct role role = {.layers = -1, .signals = -1, .alive = {-1, -1}};
    struct conf conf;
    struct err e = {0};
    const char *config = NULL, *layers = NULL;
    char text[sizeof e.message];

    log_init("image", LOG_L_INFO);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--config") == 0)
            config = argv[i + 1];
        else if (strcmp(argv[i], "--layers") == 0)
            layers = argv[i + 1];
    }
    if (layers == NULL || argc != (config != NULL ? 5 : 3))
        return usage();
    for (size_t i = 0; i < JOBS_MAX; i++)
        role.children[i].conn = -1;
    (void)umask(0);
    /* Before anything is opened, which would get the number of a missing listener. */
    if (!fd_is_listener(LISTENER)) {
        (void)err_set(&e, ERR_INTERNAL, "descriptor 3 is not a listener");
        goto failed;
    }
    if (conf_load(&conf, config != NULL ? config : CONF_DEFAULT_PATH, config == NULL, &e) < 0 ||
        open_layers(&role, layers, &e) < 0 || open_signals(&role, &e) < 0 || lower_privileges(&e) < 0)
        goto failed;
    log_init("image", log_level_from_name(conf.log_level));
    role.conf = &conf;
    js_init();
    if (fd_set_cloexec(LISTENER, true) < 0 || fd_set_nonblock(LISTENER, true) < 0 ||
        pipe2(role.alive, O_CLOEXEC) < 0) {
        (void)err_sys(&e, errno, "listener and pipe");
        goto failed;
    }
    log_info("image.ready", "layers=%s", layers);
    return serve(&role);

failed:
    log_error("image.start", "error=\"%s\"", log_escape(e.message, text, sizeof text));
    return 1;
}
