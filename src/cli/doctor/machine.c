/*
 * machine.c - memory, descriptors, users, ids and the clock
 */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <time.h>

#include "base/mem.h"
#include "cli/doctor/doctor.h"
#include "sys/userlookup.h"

#define MEMORY_LEAST_MB 256
#define MEMORY_WANTED_MB 1024
#define FILES_LEAST 1024
#define FILES_HOST 1000000      /* of all processes together; some hundred MiB of memory's worth */
#define FILES_EACH 3            /* descriptors that the busiest daemon has for a sandbox */
#define PROCESSES_EACH 8        /* of a sandbox at work, with its monitor and init */
#define YEAR_LEAST 2025
#define ID_COUNT 65536

static void memory(struct doctor *d)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    long long kb = -1;

    if (f != NULL) {
        while (kb < 0 && fgets(line, sizeof line, f) != NULL)
            if (strncmp(line, "MemAvailable:", 13) == 0)
                kb = strtoll(line + 13, NULL, 10);
        (void)fclose(f);
    }
    long long mb = kb / 1024;
    if (kb < 0)
        doctor_bad(d, "memory", FINDING_MISSING, "creates are refused", "mount -t proc proc /proc",
                   "/proc/meminfo cannot be read");
    else if (mb < MEMORY_WANTED_MB)
        doctor_bad(d, "memory", mb < MEMORY_LEAST_MB ? FINDING_MISSING : FINDING_DEGRADED, "room for few sandboxes",
                   "end programs that use memory (ps -eo rss,args --sort=-rss | head), or add memory", "%lld MiB available", mb);
    else
        doctor_ok(d, "memory", "%lld MiB available", mb);
}

static void files(struct doctor *d)
{
    struct rlimit l;
    rlim_t wanted = (rlim_t)d->conf.max_sandboxes * FILES_EACH + FILES_LEAST;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return;
    if (l.rlim_max < wanted)
        doctor_bad(d, "open_files", l.rlim_max < FILES_LEAST ? FINDING_MISSING : FINDING_DEGRADED,
                   "fewer sandboxes at once than max_sandboxes allows",
                   "ulimit -Hn 1048576 before the start, or LimitNOFILE=1048576 in the unit (the packaged unit has it)",
                   "hard limit of %" PRIu64 " descriptors; max_sandboxes = %" PRIu32 " may take %" PRIu64, (uint64_t)l.rlim_max,
                   d->conf.max_sandboxes, (uint64_t)wanted);
    else
        doctor_ok(d, "open_files", "hard limit of %" PRIu64, (uint64_t)l.rlim_max);
}

/* Root may go beyond it, so that our own daemons and the programs in sandboxes are the first who are refused. */
static void files_of_all(struct doctor *d)
{
    long long most = doctor_number("/proc/sys/fs/file-max");

    if (most >= 0 && most < FILES_HOST)
        doctor_bad(d, "files_of_all", FINDING_DEGRADED,
                   "one sandbox that opens all it may leaves no file for the others (ENFILE)",
                   "sysctl -w fs.file-max=9223372036854775807, which is what systemd sets",
                   "fs.file-max = %lld", most);
    else
        doctor_ok(d, "files_of_all", "fs.file-max = %lld", most);
}

static void processes(struct doctor *d)
{
    long long most = doctor_number("/proc/sys/kernel/pid_max"), wanted = (long long)d->conf.max_sandboxes * PROCESSES_EACH;

    if (most >= 0 && most < wanted)
        doctor_bad(d, "processes", FINDING_DEGRADED, "sandboxes run out of process numbers before they come to their own limits",
                   "sysctl -w kernel.pid_max=4194304", "kernel.pid_max = %lld, for max_sandboxes = %" PRIu32, most,
                   d->conf.max_sandboxes);
    else
        doctor_ok(d, "processes", "kernel.pid_max = %lld", most);
}

static void users(struct doctor *d)
{
    const struct {
        const char *key, *name;
    } rows[] = {
        {"user_control", d->conf.user_control}, {"user_node", d->conf.user_node},
        {"user_egress", d->conf.user_egress},   {"user_image", d->conf.user_image},
    };
    char fix[200];

    for (size_t i = 0; i < array_len(rows); i++) {
        struct user u;
        int r = user_lookup(rows[i].name, &u);
        snprintf(
            fix, sizeof fix,
            "useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin %s",
            rows[i].name);
        if (r == -ENOENT)
            doctor_bad(d, rows[i].key, FINDING_MISSING, "quicksandd does not start", fix, "there is no user '%s'", rows[i].name);
        else if (r < 0)
            doctor_bad(d, rows[i].key, FINDING_MISSING, "quicksandd does not start", "", "'%s': %s", rows[i].name, strerror(-r));
        else if (u.uid == 0)
            doctor_bad(d, rows[i].key, FINDING_MISSING, "quicksandd does not start: no role may be root",
                       "set it to another user in the configuration", "'%s' is root", rows[i].name);
        else
            doctor_ok(d, rows[i].key, "%s, uid %" PRIu32, rows[i].name, u.uid);
    }
}

/* Our ids: one range below id_base_range for monitors, and all above it. */
static bool is_ours(const struct doctor *d, uint64_t first, uint64_t count)
{
    uint64_t from = (uint64_t)(d->conf.id_base_range - 1) * ID_COUNT;

    return count > 0 && first + count > from && first < UINT32_MAX - 1;
}

static void take_subids(struct doctor *d, const char *path, char *taken, size_t size)
{
    FILE *f = fopen(path, "re");
    char line[256], name[128];
    unsigned long long first, count;

    if (f == NULL)
        return;
    while (*taken == '\0' && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%127[^:]:%llu:%llu", name, &first, &count) == 3 && is_ours(d, first, count))
            snprintf(taken, size, "%s of %s has %llu-%llu", name, path, first, first + count - 1);
    (void)fclose(f);
}

static void take_accounts(struct doctor *d, char *taken, size_t size)
{
    const struct passwd *p;

    setpwent();
    while (*taken == '\0' && (p = getpwent()) != NULL)
        if (is_ours(d, p->pw_uid, 1))
            snprintf(taken, size, "the account %s has %u", p->pw_name, (unsigned)p->pw_uid);
    endpwent();
}

static void ids(struct doctor *d)
{
    char taken[400] = "";
    unsigned long long first = (unsigned long long)(d->conf.id_base_range - 1) * ID_COUNT;

    take_subids(d, "/etc/subuid", taken, sizeof taken);
    take_subids(d, "/etc/subgid", taken, sizeof taken);
    take_accounts(d, taken, sizeof taken);
    if (*taken != '\0')
        doctor_bad(d, "ids", FINDING_DEGRADED, "root of a sandbox could be another account's id on the host",
                   "set id_base_range in the configuration above those ids (times 65536), or move them",
                   "sandboxes take ids from %llu on, but %s", first, taken);
    else
        doctor_ok(d, "ids", "from %llu on, which nobody else has", first);
}

static void system_clock(struct doctor *d)
{
    struct timex t = {0};
    time_t now = time(NULL);
    struct tm tm;
    int state = adjtimex(&t);

    if (gmtime_r(&now, &tm) == NULL || tm.tm_year + 1900 < YEAR_LEAST)
        doctor_bad(d, "clock", FINDING_MISSING, "certificates and deadlines are wrong", "timedatectl set-ntp true",
                   "the clock says %lld seconds since 1970", (long long)now);
    else if (state < 0 || state == TIME_ERROR || (t.status & STA_UNSYNC) != 0)
        doctor_bad(d, "clock", FINDING_DEGRADED, "time stamps drift from those of other machines",
                   "apt-get install systemd-timesyncd && timedatectl set-ntp true", "not kept in time by a server");
    else
        doctor_ok(d, "clock", "kept in time by a server");
}

void doctor_check_machine(struct doctor *d)
{
    memory(d);
    files(d);
    files_of_all(d);
    processes(d);
    users(d);
    ids(d);
    system_clock(d);
}
