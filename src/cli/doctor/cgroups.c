/*
 * cgroups.c - the layout of control groups, and which limits can be kept
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/doctor/doctor.h"
#include "sys/cgroup_mounts.h"
#include "sys/detached_mount.h"
#include "sys/fd.h"

/* The v2 hierarchy: where it is mounted, or an instance that nobody sees, as the keeper does it. */
static int open_v2(const struct cgroup_mounts *m)
{
    int fd = m->v2[0] != '\0' ? open(m->v2, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                              : mount_new("cgroup2", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);

    return m->v2[0] != '\0' && fd < 0 ? -errno : fd;
}

static bool v2_has(int root, const char *controller)
{
    char text[512], list[520], word[32];

    if (fd_read_at(root, "cgroup.controllers", text, sizeof text) < 0)
        return false;
    snprintf(list, sizeof list, " %s ", text);
    snprintf(word, sizeof word, " %s ", controller);
    return strstr(list, word) != NULL;
}

static void controllers(struct doctor *d, const struct cgroup_mounts *m, int root)
{
    const struct {
        const char *name, *v1, *cost;
        enum finding state;
        const char *fix;
    } rows[] = {
        {"memory", m->memory, "a limit of memory is refused, and one sandbox may use all there is",
         FINDING_DEGRADED,
         "add cgroup_enable=memory to GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub && reboot"},
        {"pids", m->pids, "no bound on processes: a fork bomb takes the host down", FINDING_MISSING,
         "boot a kernel with CONFIG_CGROUP_PIDS=y (Debian's own have it)"},
        {"cpu", m->cpu, "a limit of processor time is refused", FINDING_DEGRADED,
         "boot a kernel with CONFIG_FAIR_GROUP_SCHED=y and CONFIG_CFS_BANDWIDTH=y (Debian's own have them)"},
        {"io", m->io, "no weight of disk traffic", FINDING_DEGRADED,
         "boot a kernel with CONFIG_BLK_CGROUP=y (Debian's own have it)"},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        char name[32];
        snprintf(name, sizeof name, "cgroup_%s", rows[i].name);
        if (rows[i].v1[0] != '\0')
            doctor_ok(d, name, "v1 at %s", rows[i].v1);
        else if (v2_has(root, rows[i].name))
            doctor_ok(d, name, "v2");
        else
            doctor_bad(d, name, rows[i].state, rows[i].cost, rows[i].fix, "no such controller");
    }
}

/* The number of the disk below a file system, "8:0", and whether its scheduler is BFQ; false if there is no one disk. */
static bool find_disk(const char *place, char *number, size_t size, char *name, size_t name_size, bool *ret_bfq)
{
    char path[160], text[192], target[512];
    struct stat st;

    if (stat(place, &st) < 0)
        return false;
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    /* A partition has no queue of its own: the disk is the directory above it. */
    snprintf(text, sizeof text, "%s/partition", path);
    bool part = access(text, F_OK) == 0;
    char *last = strrchr(target, '/');
    if (part && last != NULL) {
        *last = '\0';
        last = strrchr(target, '/');
    }
    snprintf(name, name_size, "%.100s", last != NULL ? last + 1 : target);
    snprintf(path, sizeof path, "/sys/block/%.100s/dev", name);
    if (fd_read_at(AT_FDCWD, path, number, size) < 0)
        return false;
    snprintf(path, sizeof path, "/sys/block/%.100s/queue/scheduler", name);
    *ret_bfq = fd_read_at(AT_FDCWD, path, text, sizeof text) > 0 && strstr(text, "[bfq]") != NULL;
    return true;
}

/* Of all v2 files that of weights alone promises what only a scheduler or the cost model keeps. */
static void io_weight(struct doctor *d, int root)
{
    char place[sizeof d->conf.data_dir], number[32], name[128], text[2048] = "", fix[300];
    bool bfq = false;

    doctor_existing_parent(d->conf.data_dir, place, sizeof place);
    if (!find_disk(place, number, sizeof number, name, sizeof name, &bfq)) {
        doctor_ok(d, "io_weight", "%s is not on one disk of this host: not looked at", place);
        return;
    }
    (void)fd_read_at(root, "io.cost.qos", text, sizeof text);
    char *line = strstr(text, number);
    char *end = line != NULL ? strchr(line, '\n') : NULL;
    if (end != NULL)
        *end = '\0';
    if (bfq || (line != NULL && strstr(line, "enable=1") != NULL)) {
        doctor_ok(d, "io_weight", "kept on %s by %s", name, bfq ? "BFQ" : "the cost model");
        return;
    }
    snprintf(fix, sizeof fix, "echo bfq >/sys/block/%s/queue/scheduler (modprobe bfq before, if it is unknown)", name);
    doctor_bad(d, "io_weight", FINDING_DEGRADED, "the io_weight of a sandbox is written and has no effect, or is refused", fix,
               "the scheduler of %s heeds no weights", name);
}

/*
 * In a container the topmost group that is to be seen is none of the hierarchy's own: it cannot have processes of its own
 * and hand controllers to groups below it, both at a time.
 */
static void delegation(struct doctor *d, const struct cgroup_mounts *m, int root)
{
    char procs[64], handed[512], fix[1000];

    if (m->v2[0] == '\0' || faccessat(root, "cgroup.type", F_OK, 0) < 0)
        return;
    if (fd_read_at(root, "cgroup.subtree_control", handed, sizeof handed) < 0)
        handed[0] = '\0';
    /* Longer than the buffer is an error here, and says the same. */
    ssize_t n = fd_read_at(root, "cgroup.procs", procs, sizeof procs);
    if (n != 0 && strstr(handed, "pids") == NULL) {
        snprintf(fix, sizeof fix, "mkdir -p %s/init; while read -r p; do echo $p >%s/init/cgroup.procs; done <%s/cgroup.procs",
                 m->v2, m->v2, m->v2);
        doctor_bad(d, "cgroup_delegation", FINDING_MISSING,
                   "quicksandd does not start: limits cannot be handed to groups of sandboxes", fix,
                   "%s has processes of its own and is not the root of the host's hierarchy",
                   m->v2);
    } else {
        doctor_ok(d, "cgroup_delegation", "%s can hand limits to groups below it", m->v2);
    }
}

void doctor_check_cgroups(struct doctor *d)
{
    struct cgroup_mounts m;
    int r = cgroup_mounts_find(&m);

    if (r < 0) {
        doctor_bad(d, "cgroups", FINDING_MISSING, "sandboxes do not start", "mount -t proc proc /proc",
                   "/proc/self/mountinfo: %s", strerror(-r));
        return;
    }
    auto_close int root = open_v2(&m);
    if (root < 0) {
        doctor_bad(d, "cgroups", FINDING_MISSING, "sandboxes do not start: their processes live in v2 groups",
                   "mount -t cgroup2 cgroup2 /sys/fs/cgroup", "no cgroup v2: %s", strerror(-root));
        return;
    }
    bool v1 = m.cpu[0] != '\0' || m.memory[0] != '\0' || m.pids[0] != '\0' || m.io[0] != '\0';
    doctor_ok(d, "cgroups", "%s; v2 %s", v1 ? "hybrid: limits on v1, processes on v2" : "v2 alone",
              m.v2[0] != '\0' ? m.v2 : "not mounted");
    /* In a container the tree may be there and belong to the host. */
    if (faccessat(root, ".", W_OK, 0) < 0 && geteuid() == 0)
        doctor_bad(d, "cgroups_writable", FINDING_MISSING, "sandboxes do not start", "mount -o remount,rw /sys/fs/cgroup",
                   "%s: %s", m.v2, strerror(errno));
    delegation(d, &m, root);
    controllers(d, &m, root);
    io_weight(d, root);
}
