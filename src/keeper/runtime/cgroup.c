/*
 * cgroup.c - the control groups of slots and sandboxes
 */
#include "keeper/runtime/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "sys/cgroup_mounts.h"
#include "sys/detached_mount.h"
#include "sys/fd.h"

#define MONITORS "monitors"
#define OWNER_ATTRIBUTE "trusted.quicksand.data_dir"
#define OWNER_SIZE 4096
#define CPU_PERIOD_US 100000
#define ALL_WEIGHT UINT64_C(1000)       /* of all of ours together; 100 is that of a service or login of the host */
#define MONITORS_WEIGHT UINT64_C(1000)  /* of monitors and roles; 100 is that of a sandbox */
#define SHARES(weight) ((uint64_t)(weight) * 1024 / 100)        /* v1: 1024 is the default where v2 has 100 */
#define NO_REQUEST (1ULL << 60)         /* from here on a soft limit of v1 says that there is none */

static const char *const controller_names[CG_CONTROLLERS] = {"cpu", "memory", "pids", "io"};

/* The directory that holds the files of a controller. */
static int home(const struct cg *g, enum cg_controller c)
{
    return g->v1[c] >= 0 ? g->v1[c] : g->v2;
}

/* Makes and opens our directory below the hierarchy that is open as `root`. */
static int base_open(int root, const char *name, int *ret_fd, struct err *e)
{
    if (mkdirat(root, name, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make control group %s", name);
    *ret_fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0)
        return err_sys(e, errno, "open control group %s", name);
    if (mkdirat(*ret_fd, MONITORS, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make control group %s/" MONITORS, name);
    return 0;
}

/* A host without a v2 mount still has the hierarchy: we use an instance that nobody sees. */
static int v2_root(const struct cgroup_mounts *m, struct err *e)
{
    int fd = m->v2[0] != '\0' ? open(m->v2, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                              : mount_new("cgroup2", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);

    if (fd < 0)
        err_sys(e, m->v2[0] != '\0' ? errno : -fd, "open the cgroup v2 hierarchy %s", m->v2);
    return fd;
}

/* Whether a file that lists controllers names this one. */
static bool v2_lists(int root, const char *file, const char *controller)
{
    char text[512], word[32], list[520];

    if (fd_read_at(root, file, text, sizeof text) < 0)
        return false;
    snprintf(list, sizeof list, " %s ", text);
    snprintf(word, sizeof word, " %s ", controller);
    return strstr(list, word) != NULL;
}

/* Hands a controller down to the groups of the slots: from the root, and from our directory. */
static int v2_enable(int root, int base, const char *controller, struct err *e)
{
    char text[32];
    bool before = v2_lists(root, "cgroup.subtree_control", controller);

    snprintf(text, sizeof text, "+%s", controller);
    int r = fd_write_at(root, "cgroup.subtree_control", text);
    if (r == 0) {
        r = fd_write_at(base, "cgroup.subtree_control", text);
        if (r < 0 && !before) {
            text[0] = '-';
            (void)fd_write_at(root, "cgroup.subtree_control", text);
        }
    }
    /*
     * Only the root of the whole hierarchy may have processes beside groups with limits; a container's may not. A controller that
     * can count threads, as cpu does, is refused one level further down (cgroup_vet_subtree_control_enable(), Linux 6.1).
     */
    if (r == -EBUSY || r == -EOPNOTSUPP)
        return err_set(e, ERR_CONFLICT,
                       "the topmost control group has processes of its own, so %s cannot be limited below it; "
                       "`quicksand doctor` has the command that moves them", controller);
    return r < 0 ? err_sys(e, -r, "enable the %s controller of cgroup v2", controller) : 0;
}

static int controller_init(struct cg *g, int c, const char *v1_mount, struct err *e)
{
    if (*v1_mount != '\0') {
        g->parents[1 + c] = open(v1_mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (g->parents[1 + c] < 0)
            return err_sys(e, errno, "open %s", v1_mount);
        return base_open(g->parents[1 + c], g->name, &g->v1[c], e);
    }
    if (v2_lists(g->parents[0], "cgroup.controllers", controller_names[c]))
        return v2_enable(g->parents[0], g->v2, controller_names[c], e);
    g->absent[c] = true;
    return 0;
}

/*
 * Says on our directory whose it is. Without it a second daemon of the same cgroup_name would take the
 * groups of the first one's sandboxes for left-overs, and kill them; also while the first one is stopped.
 */
static int claim(const struct cg *g, const char *owner, struct err *e)
{
    char other[OWNER_SIZE], events[128];
    ssize_t n = fgetxattr(g->v2, OWNER_ATTRIBUTE, other, sizeof other - 1);

    if (n >= 0) {
        other[n] = '\0';
        if (strcmp(other, owner) != 0 && fd_read_at(g->v2, "cgroup.events", events, sizeof events) > 0 &&
            strstr(events, "populated 1") != NULL)
            return err_param(e, ERR_CONFLICT, "cgroup_name",
                             "the control group '%s' has sandboxes of the quicksandd of %.256s; set another "
                             "cgroup_name and id_base_range", g->name, other);
    }
    if (fsetxattr(g->v2, OWNER_ATTRIBUTE, owner, strlen(owner), 0) < 0)
        return err_sys(e, errno, "mark control group %s as ours", g->name);
    return 0;
}

/*
 * All sandboxes and what serves them are one group of the host: with the weight of one, a single busy sandbox would use up
 * what the others need when the host has other work. Within it, however many threads a sandbox has, what serves the others
 * gets its turn. Where this cannot be set they are only slower.
 */
static void weigh(const struct cg *g)
{
    bool is_v1 = g->v1[CG_CPU] >= 0;
    char value[24];

    if (g->absent[CG_CPU])
        return;
    snprintf(value, sizeof value, "%" PRIu64, is_v1 ? SHARES(ALL_WEIGHT) : ALL_WEIGHT);
    (void)fd_write_at(home(g, CG_CPU), is_v1 ? "cpu.shares" : "cpu.weight", value);
    snprintf(value, sizeof value, "%" PRIu64, is_v1 ? SHARES(MONITORS_WEIGHT) : MONITORS_WEIGHT);
    (void)fd_write_at(home(g, CG_CPU), is_v1 ? MONITORS "/cpu.shares" : MONITORS "/cpu.weight", value);
}

int cg_init(struct cg *g, const char *name, const char *owner, struct err *e)
{
    struct cgroup_mounts m;

    *g = (struct cg){.v2 = -1, .monitors = -1, .v1 = {-1, -1, -1, -1}, .parents = {-1, -1, -1, -1, -1}};
    if (*name == '\0' || *name == '.' || strchr(name, '/') != NULL)
        return err_param(e, ERR_INVALID, "cgroup_name", "cgroup_name '%s' is not a plain name",
                         name);
    snprintf(g->name, sizeof g->name, "%s", name);
    int r = cgroup_mounts_find(&m);
    if (r < 0)
        return err_sys(e, -r, "read /proc/self/mountinfo");
    g->parents[0] = v2_root(&m, e);
    if (g->parents[0] < 0 || base_open(g->parents[0], name, &g->v2, e) < 0 ||
        claim(g, owner, e) < 0)
        return -1;
    g->monitors = openat(g->v2, MONITORS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (g->monitors < 0)
        return err_sys(e, errno, "open control group %s/" MONITORS, name);
    if (faccessat(g->monitors, "cgroup.kill", W_OK, 0) < 0)
        return err_sys(e, errno, "cgroup.kill, which Linux has since 5.14");
    const char *v1[CG_CONTROLLERS] = {m.cpu, m.memory, m.pids, m.io};
    for (int c = 0; c < CG_CONTROLLERS; c++)
        if (controller_init(g, c, v1[c], e) < 0)
            return -1;
    weigh(g);
    return 0;
}

const char *cg_mode(const struct cg *g)
{
    int v1 = 0;

    for (int c = 0; c < CG_CONTROLLERS; c++)
        v1 += g->v1[c] >= 0;
    return v1 == 0 ? "v2" : "hybrid";
}

/*
 * The monitor may make groups below this one and move processes among them; limits stay root's. Init
 * must be able to put a new command into one of those groups, for which the kernel wants write access
 * to cgroup.procs of the target (the monitor's) and of the common ancestor: this one.
 */
static int v2_hand_over(const struct cg *g, const char *slot, uint32_t monitor_uid,
                        uint32_t sandbox_gid, struct err *e)
{
    static const char *const files[] = {"cgroup.procs", "cgroup.threads", "cgroup.subtree_control"};
    auto_close int dir = openat(g->v2, slot, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0 || fchown(dir, monitor_uid, (gid_t)-1) < 0)
        return err_sys(e, errno, "hand over control group %s/%s", g->name, slot);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (fchownat(dir, files[i], monitor_uid, sandbox_gid, 0) < 0)
            return err_sys(e, errno, "hand over %s of %s/%s", files[i], g->name, slot);
    if (fchmodat(dir, "cgroup.procs", 0664, 0) < 0)
        return err_sys(e, errno, "hand over cgroup.procs of %s/%s", g->name, slot);
    return 0;
}

int cg_make(const struct cg *g, uint32_t slot, uint32_t monitor_uid, uint32_t sandbox_gid,
            struct err *e)
{
    char name[16];

    snprintf(name, sizeof name, "%" PRIu32, slot);
    if (mkdirat(g->v2, name, 0755) < 0)
        return err_sys(e, errno, "make control group %s/%s", g->name, name);
    for (int c = 0; c < CG_CONTROLLERS; c++)
        if (g->v1[c] >= 0 && mkdirat(g->v1[c], name, 0755) < 0 && errno != EEXIST)
            return err_sys(e, errno, "make %s control group %s/%s", controller_names[c], g->name,
                           name);
    return v2_hand_over(g, name, monitor_uid, sandbox_gid, e);
}

static int open_at(int base, uint32_t slot, const char *file, int flags)
{
    char name[64];

    snprintf(name, sizeof name, "%" PRIu32 "/%s", slot, file);
    int fd = openat(base, name, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int cg_tasks_open(const struct cg *g, uint32_t slot, struct cg_tasks *ret, struct err *e)
{
    *ret = (struct cg_tasks){.n = 0};
    for (int c = 0; c < CG_CONTROLLERS; c++) {
        if (g->v1[c] < 0)
            continue;
        int fd = open_at(g->v1[c], slot, "tasks", O_WRONLY);
        if (fd < 0) {
            cg_tasks_close(ret);
            return err_sys(e, -fd, "open %s control group %s/%" PRIu32, controller_names[c],
                           g->name, slot);
        }
        ret->fds[ret->n++] = fd;
    }
    return 0;
}

int cg_tasks_enter(const struct cg_tasks *t)
{
    for (int i = 0; i < t->n; i++) {
        int r = fd_write_all(t->fds[i], "0", 1);
        if (r < 0)
            return r;
    }
    return 0;
}

void cg_tasks_close(struct cg_tasks *t)
{
    for (int i = 0; i < t->n; i++)
        fd_close(&t->fds[i]);
    t->n = 0;
}

int cg_enter_monitors(const struct cg *g, struct err *e)
{
    for (int c = 0; c < CG_CONTROLLERS; c++) {
        int r = g->v1[c] < 0 ? 0 : fd_write_at(g->v1[c], MONITORS "/tasks", "0");
        if (r < 0)
            return err_sys(e, -r, "join %s control group %s/" MONITORS, controller_names[c],
                           g->name);
    }
    return 0;
}

int cg_open(const struct cg *g, uint32_t slot)
{
    return open_at(g->v2, slot, ".", O_RDONLY | O_DIRECTORY);
}

int cg_open_kill(const struct cg *g, uint32_t slot)
{
    return open_at(g->v2, slot, "cgroup.kill", O_WRONLY);
}

int cg_open_oom(const struct cg *g, uint32_t slot)
{
    char text[32], name[64];

    if (g->absent[CG_MEMORY])
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (g->v1[CG_MEMORY] < 0)
        return open_at(g->v2, slot, "memory.events", O_RDONLY);
    auto_close int control = open_at(g->v1[CG_MEMORY], slot, "memory.oom_control", O_RDONLY);
    auto_close int event = control < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0)
        return control < 0 ? control : -errno;
    snprintf(text, sizeof text, "%d %d", event, control);
    snprintf(name, sizeof name, "%" PRIu32 "/cgroup.event_control", slot);
    int r = fd_write_at(g->v1[CG_MEMORY], name, text);
    return r < 0 ? r : take_fd(&event);
}

int cg_open_controller(const struct cg *g, uint32_t slot, enum cg_controller c)
{
    return open_at(home(g, c), slot, ".", O_RDONLY | O_DIRECTORY);
}

/* Writes a limit; one that the host cannot enforce fails unless it is "none". */
static int put(const struct cg *g, uint32_t slot, enum cg_controller c, const char *file, bool none,
               const char *value, struct err *e)
{
    char name[96];

    if (g->absent[c]) {
        if (none)
            return 0;
        return err_param(e, ERR_UNSUPPORTED, controller_names[c],
                         "this host has no %s controller, so the limit cannot be kept",
                         controller_names[c]);
    }
    snprintf(name, sizeof name, "%" PRIu32 "/%s", slot, file);
    int r = fd_write_at(home(g, c), name, value);
    return r < 0 ? err_sys(e, -r, "write %s to %s of control group %s/%" PRIu32, value, file,
                           g->name, slot)
                 : 0;
}

static int limit_cpu(const struct cg *g, uint32_t slot, const struct keeper_resources *l, struct err *e)
{
    char value[48];
    uint64_t quota_us = (uint64_t)l->cpu_milli * (CPU_PERIOD_US / 1000);

    if (g->v1[CG_CPU] < 0) {
        snprintf(value, sizeof value, l->cpu_milli == 0 ? "max" : "%" PRIu64 " %d", quota_us,
                 CPU_PERIOD_US);
        if (put(g, slot, CG_CPU, "cpu.max", l->cpu_milli == 0, value, e) < 0)
            return -1;
        snprintf(value, sizeof value, "%" PRIu32, l->cpu_weight);
        return put(g, slot, CG_CPU, "cpu.weight", true, value, e);
    }
    snprintf(value, sizeof value, l->cpu_milli == 0 ? "-1" : "%" PRIu64, quota_us);
    if (put(g, slot, CG_CPU, "cpu.cfs_quota_us", l->cpu_milli == 0, value, e) < 0)
        return -1;
    uint64_t shares = SHARES(l->cpu_weight);
    snprintf(value, sizeof value, "%" PRIu64, shares < 2 ? 2 : shares);
    return put(g, slot, CG_CPU, "cpu.shares", true, value, e);
}

/* For files that not every kernel has; elsewhere nothing is lost. */
static int put_if_there(const struct cg *g, uint32_t slot, enum cg_controller c, const char *file,
                        const char *value, struct err *e)
{
    char name[96];

    snprintf(name, sizeof name, "%" PRIu32 "/%s", slot, file);
    int r = g->absent[c] ? 0 : fd_write_at(home(g, c), name, value);
    return r < 0 && r != -ENOENT ? err_sys(e, -r, "write %s to %s of control group %s/%" PRIu32, value, file,
                                           g->name, slot)
                                 : 0;
}

static uint64_t get(const struct cg *g, uint32_t slot, enum cg_controller c, const char *file)
{
    char name[96], text[64];

    snprintf(name, sizeof name, "%" PRIu32 "/%s", slot, file);
    return fd_read_at(home(g, c), name, text, sizeof text) < 0 ? 0 : strtoull(text, NULL, 10);
}

static int too_much_in_use(uint64_t used, uint64_t limit, struct err *e)
{
    return err_param(e, ERR_CONFLICT, "memory_mb",
                     "the sandbox uses %" PRIu64 " MiB of memory, which is more than the new limit of %" PRIu64 " MiB",
                     used >> 20, limit >> 20);
}

/*
 * v1 refuses a limit below what is in use, and v2 begins to kill: so that is made known beforehand, once
 * what can be reclaimed has been.
 */
static int limit_memory_v2(const struct cg *g, uint32_t slot, const struct keeper_resources *l, struct err *e)
{
    uint64_t limit = l->memory_bytes, used = limit != 0 ? get(g, slot, CG_MEMORY, "memory.current") : 0;
    char value[32];

    if (limit != 0 && used > limit) {
        snprintf(value, sizeof value, "%" PRIu64, used - limit);
        (void)put_if_there(g, slot, CG_MEMORY, "memory.reclaim", value, NULL);
        used = get(g, slot, CG_MEMORY, "memory.current");
        if (used > limit)
            return too_much_in_use(used, limit, e);
    }
    snprintf(value, sizeof value, limit != 0 ? "%" PRIu64 : "max", limit);
    if (put(g, slot, CG_MEMORY, "memory.max", limit == 0, value, e) < 0)
        return -1;
    snprintf(value, sizeof value, "%" PRIu64, l->memory_request_bytes);
    if (put(g, slot, CG_MEMORY, "memory.low", l->memory_request_bytes == 0, value, e) < 0)
        return -1;
    /* Memory pushed out to swap would be beyond the limit. */
    return put_if_there(g, slot, CG_MEMORY, "memory.swap.max", "0", e);
}

/*
 * The limit with swap may never be below the one without, so it is lifted first and set last. Buffers of
 * TCP and UDP sockets have a counter of their own there, which is off until it has a limit.
 */
static int limit_memory_v1(const struct cg *g, uint32_t slot, const struct keeper_resources *l, struct err *e)
{
    char value[32], request[32];

    snprintf(value, sizeof value, l->memory_bytes != 0 ? "%" PRIu64 : "-1", l->memory_bytes);
    snprintf(request, sizeof request, "%" PRIu64, l->memory_request_bytes);
    if (put_if_there(g, slot, CG_MEMORY, "memory.memsw.limit_in_bytes", "-1", e) < 0)
        return -1;
    if (put(g, slot, CG_MEMORY, "memory.limit_in_bytes", l->memory_bytes == 0, value, e) < 0) {
        uint64_t used = get(g, slot, CG_MEMORY, "memory.usage_in_bytes");
        char was[32];
        snprintf(was, sizeof was, "%" PRIu64, get(g, slot, CG_MEMORY, "memory.limit_in_bytes"));
        (void)put_if_there(g, slot, CG_MEMORY, "memory.memsw.limit_in_bytes", was, NULL);
        return used > l->memory_bytes ? too_much_in_use(used, l->memory_bytes, e) : -1;
    }
    if (put_if_there(g, slot, CG_MEMORY, "memory.memsw.limit_in_bytes", value, e) < 0 ||
        put_if_there(g, slot, CG_MEMORY, "memory.soft_limit_in_bytes", request, e) < 0 ||
        put_if_there(g, slot, CG_MEMORY, "memory.kmem.tcp.limit_in_bytes", value, e) < 0)
        return -1;
    return put_if_there(g, slot, CG_MEMORY, "memory.swappiness", "0", e);
}

static int limit_io(const struct cg *g, uint32_t slot, const struct keeper_resources *l, struct err *e)
{
    const char *const v1[] = {"blkio.bfq.weight"}, *const v2[] = {"io.weight", "io.bfq.weight"};
    bool is_v1 = g->v1[CG_IO] >= 0;
    char name[96], value[32];
    int r = -ENOENT;

    if (l->io_weight == 0)
        return 0;
    for (size_t i = 0; !g->absent[CG_IO] && r == -ENOENT && i < (is_v1 ? 1 : 2); i++) {
        const char *file = is_v1 ? v1[i] : v2[i];
        uint32_t weight = l->io_weight > 1000 && strstr(file, "bfq") != NULL ? 1000 : l->io_weight;
        snprintf(name, sizeof name, "%" PRIu32 "/%s", slot, file);
        snprintf(value, sizeof value, "%" PRIu32, weight);
        r = fd_write_at(home(g, CG_IO), name, value);
    }
    if (r == -ENOENT || r == -EOPNOTSUPP)
        return err_param(e, ERR_UNSUPPORTED, "io_weight",
                         "this host has no controller that weighs disk access, so io_weight cannot be kept");
    return r < 0 ? err_sys(e, -r, "write the I/O weight of control group %s/%" PRIu32, g->name, slot) : 0;
}

/* Memory first: it is what may be refused of a sandbox that runs. */
int cg_limit(const struct cg *g, uint32_t slot, const struct keeper_resources *l, struct err *e)
{
    char value[16];
    uint32_t pids = l->pids == 0 ? LIMIT_PIDS_DEFAULT : l->pids;

    if ((g->v1[CG_MEMORY] >= 0 ? limit_memory_v1(g, slot, l, e) : limit_memory_v2(g, slot, l, e)) < 0 ||
        limit_io(g, slot, l, e) < 0 || limit_cpu(g, slot, l, e) < 0)
        return -1;
    snprintf(value, sizeof value, "%" PRIu32, pids);
    return put(g, slot, CG_PIDS, "pids.max", false, value, e);
}

uint64_t cg_request(const struct cg *g, uint32_t slot)
{
    uint64_t v = g->absent[CG_MEMORY] ? 0 : get(g, slot, CG_MEMORY, g->v1[CG_MEMORY] >= 0 ? "memory.soft_limit_in_bytes"
                                                                                         : "memory.low");
    return v >= NO_REQUEST ? 0 : v;
}

void cg_request_total(const struct cg *g, uint64_t bytes)
{
    char value[32];

    /* v1 knows no protection from above. */
    if (g->v1[CG_MEMORY] >= 0 || g->absent[CG_MEMORY])
        return;
    snprintf(value, sizeof value, "%" PRIu64, bytes);
    (void)fd_write_at(g->v2, "memory.low", value);
}

int cg_kill(const struct cg *g, uint32_t slot)
{
    char name[32];

    snprintf(name, sizeof name, "%" PRIu32 "/cgroup.kill", slot);
    int r = fd_write_at(g->v2, name, "1");
    return r == -ENOENT || r == -ENODEV ? 0 : r;
}

static int remove_group(int parent, const char *name);

static int remove_children(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *de;
    int r = 0;

    if (dir == NULL)
        return -errno;
    while (r == 0 && (de = readdir(dir)) != NULL)
        if (de->d_type == DT_DIR && de->d_name[0] != '.')
            r = remove_group(fd, de->d_name);
    (void)closedir(dir);
    return r;
}

/* EBUSY may mean groups inside as well as processes: those the monitor made go first. */
static int remove_group(int parent, const char *name)
{
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != EBUSY)
        return -errno;
    int r = remove_children(parent, name);
    if (r < 0)
        return r;
    return unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int cg_remove(const struct cg *g, uint32_t slot)
{
    char name[16];

    snprintf(name, sizeof name, "%" PRIu32, slot);
    int r = remove_group(g->v2, name);
    for (int c = 0; r == 0 && c < CG_CONTROLLERS; c++)
        if (g->v1[c] >= 0)
            r = remove_group(g->v1[c], name);
    return r;
}

static int scan_one(int base, void (*found)(uint32_t slot))
{
    int fd = openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *de;

    if (dir == NULL)
        return -errno;
    while ((de = readdir(dir)) != NULL) {
        char *end;
        unsigned long n = strtoul(de->d_name, &end, 10);
        if (de->d_name[0] >= '0' && de->d_name[0] <= '9' && *end == '\0' && n <= UINT32_MAX)
            found((uint32_t)n);
    }
    (void)closedir(dir);
    return 0;
}

int cg_scan(const struct cg *g, void (*found)(uint32_t slot))
{
    int r = scan_one(g->v2, found);

    for (int c = 0; r == 0 && c < CG_CONTROLLERS; c++)
        if (g->v1[c] >= 0)
            r = scan_one(g->v1[c], found);
    return r;
}

int cg_remove_base(const struct cg *g)
{
    const int bases[] = {g->v2, g->v1[CG_CPU], g->v1[CG_MEMORY], g->v1[CG_PIDS], g->v1[CG_IO]};
    int first = 0;

    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        if (bases[i] < 0)
            continue;
        if ((unlinkat(bases[i], MONITORS, AT_REMOVEDIR) < 0 && errno != ENOENT) ||
            (unlinkat(g->parents[i], g->name, AT_REMOVEDIR) < 0 && errno != ENOENT))
            first = first == 0 ? -errno : first;
    }
    return first;
}
