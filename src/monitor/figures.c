/*
 * figures.c - the figures of the machine that a sandbox sees: its own, not the host's
 *
 * Plain files on the keeper's tmpfs are bound over /proc/meminfo, /proc/stat, /proc/loadavg and, where the
 * sandbox has a part of the host's processors, over /proc/cpuinfo and the list of processors in /sys. They are
 * written when a command starts and about once a second while something works; a sandbox in which nothing
 * happens is looked at ever more rarely, so that thousands of idle ones wake nobody. Readers read a
 * file: nothing can hang, and without a monitor the figures are only old.
 */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/clock.h"
#include "monitor/monitor.h"
#include "monitor/text.h"
#include "sys/fd.h"

#define SOONEST_MS 100          /* between two writes because of commands */
#define INTERVAL_MS 1000
#define INTERVAL_MOST_MS 256000
#define IDLE_PART 200           /* less than this part of a processor is no work */
#define STAT_MAX 8192
#define NO_LIMIT (1ULL << 60)   /* from here on a limit of v1 says that there is none */
#define HZ_US 10000             /* a tick of /proc/stat */

static struct {
    uint8_t all[KEEPER_CPUS];   /* that the keeper may use */
    uint8_t cpus[KEEPER_CPUS];
    bool own_cpus;              /* a part of the host's: cpuinfo and the list are bound */
    int cpuinfo;                /* of the host, open from before Landlock; -1 without own_cpus */
    uint64_t host_kb;
    int64_t start_ms, last_ms, due_ms, interval_ms;
    int64_t boot_s;             /* wall clock */
    uint64_t last_us;           /* processor time */
    uint64_t load[3];           /* thousandths, of 1, 5 and 15 minutes */
    size_t length[MON_FD_END];  /* of the files, by descriptor */
} fig = {.cpuinfo = -1, .due_ms = NEVER, .interval_ms = INTERVAL_MS};

static bool has_cpu(unsigned cpu)
{
    return cpu < 8 * KEEPER_CPUS && (fig.cpus[cpu / 8] & (1 << cpu % 8)) != 0;
}

static unsigned count_cpus(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < 8 * KEEPER_CPUS; i++)
        n += has_cpu(i);
    return n != 0 ? n : 1;
}

/* A reader may see old and new beside each other; every number keeps its place, so none is torn off. */
static void put_file(int fd, const char *text, size_t n)
{
    if (pwrite(fd, text, n, 0) < 0)
        return;
    if (n < fig.length[fd])
        (void)ftruncate(fd, (off_t)n);
    fig.length[fd] = n;
}

static void put_kb(char **at, const char *name, uint64_t kb)
{
    char *begin = *at;

    text_put(at, name);
    *(*at)++ = ':';
    while (*at - begin < 16)
        *(*at)++ = ' ';
    text_padded(at, kb, 8, ' ');
    text_put(at, " kB\n");
}

/* The limit of the group, or all that the host has. */
static uint64_t total_kb(void)
{
    uint64_t v = usage_memory_limit();

    return v != 0 && v < NO_LIMIT && v / 1024 < fig.host_kb ? v / 1024 : fig.host_kb;
}

static void write_meminfo(const struct sandbox_record *r)
{
    char stat[STAT_MAX], text[2048], *at = text;
    ssize_t n = fd_read_at(MON_FD_MEMORY, "memory.stat", stat, sizeof stat);

    if (n < 0)
        stat[0] = '\0';
    /* v2's name, then v1's. */
    uint64_t anon = usage_key(stat, "anon", "rss") / 1024, file = usage_key(stat, "file", "cache") / 1024;
    uint64_t mapped = usage_key(stat, "file_mapped", "mapped_file") / 1024;
    uint64_t dirty = usage_key(stat, "file_dirty", "dirty") / 1024;
    uint64_t writeback = usage_key(stat, "file_writeback", "writeback") / 1024;
    uint64_t shmem = usage_key(stat, "shmem", "shmem") / 1024;
    uint64_t active_anon = usage_key(stat, "active_anon", "") / 1024;
    uint64_t inactive_anon = usage_key(stat, "inactive_anon", "") / 1024;
    uint64_t active_file = usage_key(stat, "active_file", "") / 1024;
    uint64_t inactive_file = usage_key(stat, "inactive_file", "") / 1024;
    uint64_t reclaimable = usage_key(stat, "slab_reclaimable", "") / 1024;
    uint64_t unreclaimable = usage_key(stat, "slab_unreclaimable", "") / 1024;
    uint64_t total = total_kb(), used = r->memory_now / 1024;
    uint64_t free_kb = used < total ? total - used : 0;
    uint64_t available = free_kb + active_file + inactive_file + reclaimable;

    put_kb(&at, "MemTotal", total);
    put_kb(&at, "MemFree", free_kb);
    put_kb(&at, "MemAvailable", available < total ? available : total);
    put_kb(&at, "Buffers", 0);
    put_kb(&at, "Cached", file);
    put_kb(&at, "SwapCached", 0);
    put_kb(&at, "Active", active_anon + active_file);
    put_kb(&at, "Inactive", inactive_anon + inactive_file);
    put_kb(&at, "Active(anon)", active_anon);
    put_kb(&at, "Inactive(anon)", inactive_anon);
    put_kb(&at, "Active(file)", active_file);
    put_kb(&at, "Inactive(file)", inactive_file);
    put_kb(&at, "Unevictable", usage_key(stat, "unevictable", "") / 1024);
    put_kb(&at, "Mlocked", 0);
    put_kb(&at, "SwapTotal", 0);
    put_kb(&at, "SwapFree", 0);
    put_kb(&at, "Dirty", dirty);
    put_kb(&at, "Writeback", writeback);
    put_kb(&at, "AnonPages", anon);
    put_kb(&at, "Mapped", mapped);
    put_kb(&at, "Shmem", shmem);
    put_kb(&at, "KReclaimable", reclaimable);
    put_kb(&at, "Slab", reclaimable + unreclaimable);
    put_kb(&at, "SReclaimable", reclaimable);
    put_kb(&at, "SUnreclaim", unreclaimable);
    put_kb(&at, "CommitLimit", total);
    put_kb(&at, "Committed_AS", used);
    text_put(&at, "HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\nHugePages_Surp:        0\n");
    put_kb(&at, "Hugepagesize", 2048);
    put_file(MON_FD_MEMINFO, text, (size_t)(at - text));
}

static void put_cpu(char **at, uint64_t user, uint64_t system, uint64_t idle)
{
    text_number(at, user);
    text_put(at, " 0 ");
    text_number(at, system);
    text_put(at, " ");
    text_number(at, idle);
    text_put(at, " 0 0 0 0 0 0\n");
}

/* The kernel does not count by processor what a group used: each has had its part. */
static void write_stat(const struct sandbox_record *r)
{
    char text[64], *at = (char *)io_buffer;
    uint64_t user_us = 0, system_us = 0;
    uint64_t n = count_cpus(), up = (uint64_t)(mon.now_ms - fig.start_ms) * 1000 / HZ_US;

    usage_times(&user_us, &system_us);
    uint64_t user = user_us / HZ_US, system = system_us / HZ_US;
    uint64_t idle = up * n > user + system ? up * n - user - system : 0;
    text_put(&at, "cpu  ");
    put_cpu(&at, user, system, idle);
    for (unsigned i = 0; i < 8 * KEEPER_CPUS; i++) {
        if (!has_cpu(i))
            continue;
        char *t = text;
        text_put(&t, "cpu");
        text_number(&t, i);
        text_put(&t, " ");
        *t = '\0';
        text_put(&at, text);
        put_cpu(&at, user / n, system / n, idle / n);
    }
    text_put(&at, "intr 0\nctxt 0\nbtime ");
    text_number(&at, (uint64_t)fig.boot_s);
    text_put(&at, "\nprocesses ");
    text_number(&at, r->pids_now);
    text_put(&at, "\nprocs_running 1\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n");
    buffers_used((size_t)((uint8_t *)at - io_buffer));
    put_file(MON_FD_STAT, (const char *)io_buffer, (size_t)((uint8_t *)at - io_buffer));
}

/* What was busy on average, in the way of the kernel's own numbers. */
static void write_loadavg(const struct sandbox_record *r, uint64_t busy, int64_t elapsed_ms)
{
    static const int64_t periods_ms[3] = {60000, 300000, 900000};
    char text[96], *at = text;

    for (int i = 0; i < 3; i++) {
        int64_t change = ((int64_t)busy - (int64_t)fig.load[i]) * elapsed_ms / (elapsed_ms + periods_ms[i]);
        fig.load[i] = (uint64_t)((int64_t)fig.load[i] + change);
        text_number(&at, fig.load[i] / 1000);
        text_put(&at, ".");
        text_padded(&at, fig.load[i] % 1000 / 10, 2, '0');
        text_put(&at, " ");
    }
    text_number(&at, busy / 1000 + 1);
    text_put(&at, "/");
    text_number(&at, r->pids_now);
    text_put(&at, " ");
    text_number(&at, r->pids_now);
    text_put(&at, "\n");
    put_file(MON_FD_LOADAVG, text, (size_t)(at - text));
}

static void refresh(void)
{
    struct sandbox_record r = {0};
    int64_t elapsed_ms = mon.now_ms - fig.last_ms;

    usage_fill(&r);
    uint64_t used_us = r.cpu_us > fig.last_us ? r.cpu_us - fig.last_us : 0;
    uint64_t busy = elapsed_ms > 0 ? used_us / (uint64_t)elapsed_ms : 0;    /* us a ms: thousandths of a processor */
    write_meminfo(&r);
    write_stat(&r);
    write_loadavg(&r, busy, elapsed_ms > 0 ? elapsed_ms : 0);
    fig.interval_ms = busy >= 1000 / IDLE_PART                ? INTERVAL_MS
                      : fig.interval_ms < INTERVAL_MOST_MS / 2 ? fig.interval_ms * 2
                                                               : INTERVAL_MOST_MS;
    fig.last_ms = mon.now_ms;
    fig.last_us = r.cpu_us;
}

static void due(int64_t when_ms)
{
    fig.due_ms = when_ms;
    due_at(when_ms);
}

void figures_command_starts(void)
{
    if (mon.now_ms - fig.last_ms >= SOONEST_MS)
        refresh();
    fig.interval_ms = INTERVAL_MS;
    if (fig.due_ms > mon.now_ms + INTERVAL_MS)
        due(mon.now_ms + INTERVAL_MS);
}

void figures_run_timers(void)
{
    if (fig.due_ms == NEVER)
        return;
    if (mon.now_ms >= fig.due_ms) {
        if (execs_live() == 0 || mon.phase >= PHASE_KILL) {
            fig.due_ms = NEVER;         /* the next command begins again */
            return;
        }
        refresh();
        fig.due_ms = mon.now_ms + fig.interval_ms;
    }
    due_at(fig.due_ms);
}

/* Those blocks of the host's text that are about our processors. */
static void write_cpuinfo(void)
{
    size_t out = 0;
    off_t in = 0;
    bool ours = false;

    for (;;) {
        ssize_t n = pread(fig.cpuinfo, io_buffer, sizeof io_buffer, in);
        if (n <= 0)
            break;
        const char *line = (const char *)io_buffer, *end = line + n;
        const char *from = line;        /* begin of what is not written yet */
        const char *next;
        while ((next = memchr(line, '\n', (size_t)(end - line))) != NULL) {
            if (next - line > 10 && memcmp(line, "processor", 9) == 0) {
                if (ours && pwrite(MON_FD_CPUINFO, from, (size_t)(line - from), (off_t)out) == line - from)
                    out += (size_t)(line - from);
                const char *digits = memchr(line, ':', (size_t)(next - line));
                unsigned cpu = 0;
                for (digits = digits != NULL ? digits + 2 : next; digits < next && *digits >= '0' && *digits <= '9'; digits++)
                    cpu = cpu * 10 + (unsigned)(*digits - '0');
                ours = has_cpu(cpu);
                from = line;
            }
            line = next + 1;
        }
        if (line == (const char *)io_buffer)
            break;                      /* no line is as long as this */
        if (ours && pwrite(MON_FD_CPUINFO, from, (size_t)(line - from), (off_t)out) == line - from)
            out += (size_t)(line - from);
        in += line - (const char *)io_buffer;
    }
    buffers_used(sizeof io_buffer);
    if (out < fig.length[MON_FD_CPUINFO])
        (void)ftruncate(MON_FD_CPUINFO, (off_t)out);
    fig.length[MON_FD_CPUINFO] = out;
}

/* "0-2,5" */
static void write_online(void)
{
    char *at = (char *)io_buffer;

    for (unsigned i = 0; i < 8 * KEEPER_CPUS; i++) {
        unsigned last = i;
        if (!has_cpu(i))
            continue;
        while (has_cpu(last + 1))
            last++;
        if (at != (char *)io_buffer)
            text_put(&at, ",");
        text_number(&at, i);
        if (last > i) {
            text_put(&at, "-");
            text_number(&at, last);
        }
        i = last;
    }
    text_put(&at, "\n");
    put_file(MON_FD_ONLINE, (const char *)io_buffer, (size_t)((uint8_t *)at - io_buffer));
}

static bool is_set(const uint8_t *cpus)
{
    for (int i = 0; i < KEEPER_CPUS; i++)
        if (cpus[i] != 0)
            return true;
    return false;
}

static void take_cpus(const uint8_t *cpus)
{
    memcpy(fig.cpus, is_set(cpus) ? cpus : fig.all, sizeof fig.cpus);
}

void figures_setup(const struct keeper_configure *c)
{
    struct sysinfo info = {0};

    fig.host_kb = sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit / 1024 : 0;
    fig.boot_s = clock_wall_ms() / 1000 - (mon.now_ms - fig.start_ms) / 1000;
    /* What the monitor may use it has from the keeper. */
    if (sched_getaffinity(0, sizeof fig.all, (cpu_set_t *)(void *)fig.all) < 0)
        fig.all[0] = 1;
    fig.own_cpus = is_set(c->cpus);
    take_cpus(c->cpus);
    if (fig.own_cpus) {
        fig.cpuinfo = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
        write_cpuinfo();
        write_online();
    }
    refresh();
}

void figures_start(void)
{
    fig.start_ms = fig.last_ms = mon.now_ms;
}

/* Programs that run keep their processors; the next ones have these. */
void figures_set_cpus(const uint8_t *cpus)
{
    uint8_t out[KEEPER_CPUS + 8];
    struct init_cpus m;

    take_cpus(cpus);
    memcpy(m.cpus, fig.cpus, sizeof m.cpus);
    (void)chan_send(MON_FD_INIT, INIT_CPUS, 0, out, init_cpus_encode(&m, out, sizeof out), NULL, 0);
    if (fig.own_cpus) {
        write_cpuinfo();
        write_online();
    }
    refresh();
    figures_command_starts();
}
