/*
 * usage.c - counters of the sandbox's cgroups
 *
 * The files are those of cgroup v1 or v2, whichever the descriptors belong to. The one that every exec
 * looks at is kept open.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "monitor/monitor.h"
#include "sys/fd.h"

#define FILE_MAX 4096

static int oom_fd = -1;

static uint64_t number(const char *p)
{
    uint64_t v = 0;

    for (; *p >= '0' && *p <= '9'; p++)
        v = v * 10 + (uint64_t)(*p - '0');
    return v;
}

/* The number after `key` and a space at the start of a line; with key NULL the first one. */
static uint64_t value_of(const char *text, const char *key)
{
    if (key == NULL)
        return number(text);
    size_t n = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            return number(line + n + 1);
    }
    return 0;
}

static bool read_value(int dir, const char *name, const char *key, uint64_t *ret)
{
    char text[FILE_MAX];

    if (fd_read_at(dir, name, text, sizeof text) < 0)
        return false;
    *ret = value_of(text, key);
    return true;
}

uint64_t usage_key(const char *text, const char *v2, const char *v1)
{
    uint64_t v = value_of(text, v2);

    return v != 0 || *v1 == '\0' ? v : value_of(text, v1);
}

uint64_t usage_memory_limit(void)
{
    uint64_t v = 0;

    /* "max" is no number, and so none */
    if (!read_value(MON_FD_MEMORY, "memory.max", NULL, &v))
        (void)read_value(MON_FD_MEMORY, "memory.limit_in_bytes", NULL, &v);
    return v;
}

void usage_times(uint64_t *ret_user_us, uint64_t *ret_system_us)
{
    char text[FILE_MAX];

    if (fd_read_at(MON_FD_CPU, "cpu.stat", text, sizeof text) < 0)
        return;
    *ret_user_us = value_of(text, "user_usec");
    *ret_system_us = value_of(text, "system_usec");
}

void usage_open(void)
{
    oom_fd = openat(MON_FD_MEMORY, "memory.oom_control", O_RDONLY | O_CLOEXEC);
    if (oom_fd < 0)
        oom_fd = openat(MON_FD_MEMORY, "memory.events", O_RDONLY | O_CLOEXEC);
}

uint64_t usage_oom_kills(void)
{
    char text[512];
    ssize_t n = oom_fd < 0 ? -1 : pread(oom_fd, text, sizeof text - 1, 0);

    if (n < 0)
        return 0;
    text[n] = '\0';
    return value_of(text, "oom_kill");
}

void usage_fill(struct sandbox_record *r)
{
    uint64_t v = 0;

    if (read_value(MON_FD_CPU, "cpuacct.usage", NULL, &v))
        r->cpu_us = v / 1000;
    else if (read_value(MON_FD_CPU, "cpu.stat", "usage_usec", &v))
        r->cpu_us = v;
    if (read_value(MON_FD_MEMORY, "memory.usage_in_bytes", NULL, &v) ||
        read_value(MON_FD_MEMORY, "memory.current", NULL, &v))
        r->memory_now = v;
    if (read_value(MON_FD_MEMORY, "memory.max_usage_in_bytes", NULL, &v) ||
        read_value(MON_FD_MEMORY, "memory.peak", NULL, &v))
        r->memory_peak = v;
    else if (mon.r.memory_peak < r->memory_now)     /* before Linux 5.19: the most that we saw */
        r->memory_peak = mon.r.memory_peak = r->memory_now;
    if (read_value(MON_FD_PIDS, "pids.current", NULL, &v))
        r->pids_now = v;
    r->oom_kills = usage_oom_kills();
}
