/*
 * main.c - quicksandd, the keeper: start and stop
 *
 * quicksandd [--config FILE] [--foreground]
 *
 * Order matters: everything that a role, a monitor or the spawner inherits is made before they are; the
 * filter comes last, before the first message is read. Without --foreground the command returns when all
 * is ready, or with the error.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "keeper/cpus.h"
#include "keeper/filter.h"
#include "keeper/keeper.h"
#include "keeper/ledger.h"
#include "keeper/objects.h"
#include "keeper/recover.h"
#include "keeper/request.h"
#include "keeper/roles.h"
#include "keeper/runtime/pool.h"
#include "keeper/runtime/slot_net.h"
#include "keeper/sandbox.h"
#include "keeper/scaffold.h"
#include "keeper/spawner.h"
#include "keeper/sweep.h"
#include "keeper/trees.h"
#include "sys/caps.h"
#include "sys/fd.h"

/* What is left to the keeper: mounts and subvolumes, files of any owner, and ending processes. */
#define KEEPER_CAPS                                                                         \
    (CAP_BIT(CAP_SYS_ADMIN) | CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) |              \
     CAP_BIT(CAP_FOWNER) | CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_KILL))

#define STOP_MS 6000                    /* roles have half of it before SIGKILL */
#define SWEEP_ROUNDS 200
#define SWEEP_PAUSE_MS 10
#define EXIT_USAGE 2

struct keeper keeper = {
    .data_fd = -1, .lock_fd = -1, .layers_fd = -1, .runs_fd = -1, .ledger_fd = -1, .trees_fd = -1,
    .sandboxes_fd = -1, .deltas_fd = -1, .scaffold_fd = -1, .objects_fd = -1, .init_exe = -1,
    .monitor_exe = -1, .tenant_filter = -1, .nested_filter = -1, .null_fd = -1, .meminfo_fd = -1, .keeper_sock = -1,
    .role_sock = {-1, -1, -1, -1}, .role_tcp = {-1, -1, -1, -1},
};

struct options {
    const char *config;                 /* NULL = the default path, which may be missing */
    bool foreground;
};

static int parse_options(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            o->config = argv[++i];
        else if (strcmp(argv[i], "--foreground") == 0)
            o->foreground = true;
        else
            return -1;
    }
    return 0;
}

static int load_config(const struct options *o, struct err *e)
{
    const char *path = o->config != NULL ? o->config : CONF_DEFAULT_PATH;
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    char absolute[4096];

    if (conf_load(&keeper.conf, path, o->config == NULL, e) < 0)
        return -1;
    /* Roles start in another directory, and without a file they take the defaults as we do. */
    if (o->config == NULL)
        absolute[0] = '\0';
    else if (realpath(path, absolute) == NULL)
        return err_sys(e, errno, "resolve %s", path);
    if (snprintf(keeper.conf_path, sizeof keeper.conf_path, "%s", absolute) >= (int)sizeof keeper.conf_path)
        return err_set(e, ERR_INVALID, "the path of the configuration file is too long");
    for (int i = 0; i < 4; i++) {
        if (strcmp(keeper.conf.log_level, levels[i]) == 0) {
            log_init("keeper", (enum log_level)i);
            return 0;
        }
    }
    return err_param(e, ERR_INVALID, "log_level", "log_level '%s' is none of error, warn, info, debug",
                     keeper.conf.log_level);
}

static int open_groups(struct err *e)
{
    char owner[4096];

    if (realpath(keeper.conf.data_dir, owner) == NULL)
        return err_sys(e, errno, "resolve %s", keeper.conf.data_dir);
    return cg_init(&keeper.cg, keeper.conf.cgroup_name, owner, e);
}

static int open_trees(struct err *e)
{
    if (trees_mount(&keeper.conf, keeper.data_fd, e) < 0)
        return -1;
    keeper.trees_fd = openat(keeper.data_fd, "trees", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (keeper.trees_fd < 0 || fchmod(keeper.trees_fd, 0700) < 0)
        return err_sys(e, errno, "open trees");
    const char *const names[] = {"sandboxes", "deltas", "volumes"};
    for (int i = 0; i < 3; i++)
        if (mkdirat(keeper.trees_fd, names[i], 0700) < 0 && errno != EEXIST)
            return err_sys(e, errno, "make trees/%s", names[i]);
    keeper.sandboxes_fd = openat(keeper.trees_fd, "sandboxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    keeper.deltas_fd = openat(keeper.trees_fd, "deltas", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (keeper.sandboxes_fd < 0 || keeper.deltas_fd < 0)
        return err_sys(e, errno, "open trees/sandboxes and trees/deltas");
    return 0;
}

static bool idle(void)
{
    bool more = pool_step();

    more = sweep_step() || more;
    return sandbox_step() || more;
}

static void check_stopped(struct timer *t)
{
    static int64_t since_ms;

    if (since_ms == 0)
        since_ms = clock_boot_ms();
    if (roles_all_gone() || clock_boot_ms() - since_ms > STOP_MS)
        keeper.loop.stop = true;
    else
        evloop_timer(&keeper.loop, t, 20);
}

static void on_signal(struct watch *w, uint32_t events)
{
    static struct timer stop = {.due = check_stopped};
    struct signalfd_siginfo info;

    if (read(w->fd, &info, sizeof info) != sizeof info || keeper.stopping)
        return;
    log_info("stop", "signal=%u; sandboxes run on", info.ssi_signo);
    keeper.stopping = true;
    roles_stop();
    pool_drop_all();
    evloop_timer(&keeper.loop, &stop, 0);
}

static int watch_signals(struct err *e)
{
    static struct watch w = {.ready = on_signal, .fd = -1};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_sys(e, errno, "block signals");
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int r = fd < 0 ? -errno : evloop_watch(&keeper.loop, &w, fd, EPOLLIN);
    return r < 0 ? err_sys(e, -r, "watch signals") : 0;
}

static int prepare(struct err *e)
{
    if (geteuid() != 0)
        return err_set(e, ERR_DENIED, "quicksandd must be started as root");
    if (start_users(e) < 0 || start_directories(e) < 0 || start_programs(e) < 0 || open_groups(e) < 0 ||
        open_trees(e) < 0 || objects_make(e) < 0 ||
        filter_tenant_compile(false, &keeper.tenant_filter, e) < 0 ||
        filter_tenant_compile(true, &keeper.nested_filter, e) < 0 || slot_net_prepare(e) < 0 || start_sockets(e) < 0)
        return -1;
    int r = evloop_init(&keeper.loop);
    if (r < 0)
        return err_sys(e, -r, "make the event loop");
    keeper.loop.idle = idle;
    return 0;
}

static int run(struct err *e)
{
    cpus_init();
    sandbox_init();
    if (spawner_start(e) < 0 || watch_signals(e) < 0)
        return -1;
    (void)fd_raise_limit(); /* one or two descriptors a sandbox; with less, creates fail sooner */
    /* Only the spawner's children are handed these. */
    for (int i = 0; i < ROLES; i++) {
        fd_close(&keeper.role_sock[i]);
        fd_close(&keeper.role_tcp[i]);
    }
    if (recover(e) < 0 || scaffold_prepare(sandbox_count(), e) < 0 || pool_init(e) < 0)
        return -1;
    (void)spawner_empty_trash();
    (void)prctl(PR_SET_DUMPABLE, 0);
    int r = caps_limit(KEEPER_CAPS);
    if (r < 0)
        return err_sys(e, -r, "drop capabilities");
    if (filter_keeper_load(e) < 0 || spawner_watch(e) < 0 || request_listen(e) < 0)
        return -1;
    trees_watch();
    roles_start();
    return 0;
}

/*
 * Builders that were at work when the spawner ended leave groups that nobody else knows. They are being
 * killed, but may still be inside of a call, so look until two looks have found nothing.
 */
static void sweep_to_the_end(void)
{
    int clean = 0;

    for (int i = 0; i < SWEEP_ROUNDS && clean < 2; i++) {
        (void)recover_groups();
        clean = sweep_is_empty() ? clean + 1 : 0;
        while (sweep_step())
            ;
        (void)poll(NULL, 0, SWEEP_PAUSE_MS);
    }
}

/* Forks; the parent waits until the child is ready or has failed, and exits as it did. */
static int background(int *ret_ready, struct err *e)
{
    int ready[2];
    char result;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(e, errno, "fork");
    if (pid == 0) {
        fd_close(&ready[0]);
        (void)setsid();
        *ret_ready = ready[1];
        return 0;
    }
    fd_close(&ready[1]);
    ssize_t n;
    do
        n = read(ready[0], &result, 1);
    while (n < 0 && errno == EINTR);
    _exit(n == 1 ? 0 : 1);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct err e = {0};
    auto_close int ready = -1;

    log_init("keeper", LOG_L_INFO);
    if (parse_options(argc, argv, &o) < 0) {
        log_error("start", "usage: quicksandd [--config FILE] [--foreground]");
        return EXIT_USAGE;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    if (load_config(&o, &e) < 0 || (!o.foreground && background(&ready, &e) < 0) || prepare(&e) < 0 ||
        run(&e) < 0) {
        log_error("start", "%s", e.message);
        return 1;
    }
    log_info("start", "ready data_dir=%s cgroups=%s sandboxes=%u", keeper.conf.data_dir,
             cg_mode(&keeper.cg), sandbox_count());
    if (ready >= 0)
        (void)!write(ready, "", 1);     /* nobody may be waiting any more */
    fd_close(&ready);
    evloop_run(&keeper.loop);
    if (!keeper.stopping)
        return 1;
    spawner_stop();
    sweep_to_the_end();
    /* With nothing left to keep, leave the host as it was found. */
    if (sandbox_count() == 0) {
        fd_close(&keeper.sandboxes_fd);
        fd_close(&keeper.deltas_fd);
        fd_close(&keeper.trees_fd);
        trees_unmount(&keeper.conf);
        /* Monitors of unused slots are on their way out. */
        for (int i = 0; i < SWEEP_ROUNDS && cg_remove_base(&keeper.cg) < 0; i++)
            (void)poll(NULL, 0, SWEEP_PAUSE_MS);
    }
    return 0;
}
