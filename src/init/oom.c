/*
 * oom.c - which process did the memory limit kill?
 *
 * Called by serve.c when the monitor asks, right after the kernel has told it. The victim has SIGKILL
 * pending until it is reaped, and giving back its memory takes a while: so it is mostly still there. If not,
 * the largest process that was seen before is the one that the kernel's rule took. Nobody but this sandbox
 * depends on what is found.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/init.h"
#include "sys/fd.h"

#define STATUS_MAX 2048
#define SIGKILL_BIT (1ULL << 8)

/* The rest of the line that begins with `key`, or NULL. */
static const char *field(const char *text, const char *key)
{
    size_t n = strlen(key);

    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, n) == 0)
            return line + n + strspn(line + n, " \t");
    }
    return NULL;
}

static bool is_being_killed(const char *status)
{
    const char *shared = field(status, "ShdPnd:"), *own = field(status, "SigPnd:");

    return (shared != NULL && (strtoull(shared, NULL, 16) & SIGKILL_BIT) != 0) ||
           (own != NULL && (strtoull(own, NULL, 16) & SIGKILL_BIT) != 0);
}

static unsigned long rss_kb(const char *status)
{
    const char *at = field(status, "VmRSS:");

    return at != NULL ? strtoul(at, NULL, 10) : 0;
}

/* The number of the exec's group: the line "0::/x<number>". -1 = none. */
static int32_t group_of(const struct init *in, const char *pid)
{
    char path[32], text[1024];

    snprintf(path, sizeof path, "%.16s/cgroup", pid);
    if (fd_read_at(in->proc, path, text, sizeof text) < 0)
        return -1;
    const char *at = field(text, "0::/x");
    return at != NULL && *at >= '0' && *at <= '9' ? (int32_t)strtol(at, NULL, 10) : -1;
}

static void take(const struct init *in, const char *pid, const char *status, struct init_oom_r *r)
{
    const char *name = field(status, "Name:");
    size_t n = name != NULL ? strcspn(name, "\n") : 0;

    r->pid = (int32_t)strtol(pid, NULL, 10);
    r->group = group_of(in, pid);
    if (n >= sizeof r->comm)
        n = sizeof r->comm - 1;
    memcpy(r->comm, name != NULL ? name : "", n);
    r->comm[n] = '\0';
    for (char *p = r->comm; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

void oom_answer(struct init *in, const struct init_oom *m)
{
    struct init_oom_r r = {.tag = m->tag, .group = -1};
    char path[32], status[STATUS_MAX];
    uint8_t out[64];
    int fd = openat(in->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *de;
    unsigned long most_kb = 0;

    while (dir != NULL && !r.certain && (de = readdir(dir)) != NULL) {
        if (de->d_name[0] < '1' || de->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "%.16s/status", de->d_name);
        /* A status that is too long has its tail cut off, where nothing of interest is. */
        if (fd_read_at(in->proc, path, status, sizeof status) <= 0)
            continue;
        unsigned long kb = rss_kb(status);
        r.certain = is_being_killed(status);
        if (r.certain || kb > most_kb) {
            take(in, de->d_name, status, &r);
            most_kb = kb;
        }
    }
    if (dir != NULL)
        (void)closedir(dir);
    reply(in, INIT_OOM_R, out, init_oom_r_encode(&r, out, sizeof out));
}
