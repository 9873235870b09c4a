/*
 * report.c - findings and helpers of the checks
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/doctor/doctor.h"
#include "sys/fd.h"
#include "sys/idmap.h"
#include "sys/process.h"

#define ACT_MS 20000

static void add(struct doctor *d, const char *name, enum finding state, const char *cost, const char *fix, const char *fmt,
                va_list args)
{
    static const char *const states[] = {"ok", "degraded", "missing"};
    char found[512];

    (void)vsnprintf(found, sizeof found, fmt, args);
    d->missing += state == FINDING_MISSING;
    d->degraded += state == FINDING_DEGRADED;
    json_t *check = json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", name, "state", states[state], "found", found,
                              "cost", cost, "fix", fix);
    if (check == NULL)          /* what was found is not valid UTF-8 */
        check = json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", name, "state", states[state], "found", "", "cost", cost,
                          "fix", fix);
    (void)json_array_append_new(d->checks, check);
}

void doctor_ok(struct doctor *d, const char *name, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add(d, name, FINDING_OK, "", "", fmt, args);
    va_end(args);
}

void doctor_bad(struct doctor *d, const char *name, enum finding state, const char *cost, const char *fix, const char *fmt,
                ...)
{
    va_list args;

    va_start(args, fmt);
    add(d, name, state, cost, fix, fmt, args);
    va_end(args);
}

static void child_run(int channel, int (*act)(void)) __attribute__((noreturn));

static void child_run(int channel, int (*act)(void))
{
    char go;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(channel, &go, 1) != 1)
        _exit(0);
    int r = act != NULL ? act() : 0;
    (void)!write(channel, &r, sizeof r);
    _exit(0);
}

int doctor_child_start(struct doctor_child *c, uint64_t flags, uint32_t id_base, int (*act)(void))
{
    int pair[2];

    *c = (struct doctor_child){.pid = -1, .channel = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    (void)fflush(NULL);
    c->pid = process_clone(flags, -1, NULL);
    if (c->pid == 0) {
        (void)close(pair[0]);
        child_run(pair[1], act);
    }
    (void)close(pair[1]);
    c->channel = pair[0];
    int r = c->pid < 0 ? (int)c->pid : 0;
    if (r == 0 && (flags & CLONE_NEWUSER) != 0)
        r = idmap_write(c->pid, id_base);
    if (r < 0)
        doctor_child_end(c);
    return r;
}

int doctor_child_act(struct doctor_child *c)
{
    struct pollfd p = {.fd = c->channel, .events = POLLIN};
    int r = 0;

    if (write(c->channel, "", 1) != 1 || poll(&p, 1, ACT_MS) != 1)
        return -ETIME;
    return read(c->channel, &r, sizeof r) == sizeof r ? r : -EIO;
}

void doctor_child_end(struct doctor_child *c)
{
    if (c->pid > 0) {
        (void)kill(c->pid, SIGKILL);
        (void)waitpid(c->pid, NULL, 0);
    }
    fd_close(&c->channel);
    c->pid = -1;
}

long long doctor_number(const char *path)
{
    char text[64];

    if (fd_read_at(AT_FDCWD, path, text, sizeof text) < 0)
        return -1;
    return strtoll(text, NULL, 10);
}

/* Whether a line of modules.builtin or modules.dep names the module: ".../nft_tproxy.ko", ".../btrfs.ko.xz: ..." */
static bool list_names(const char *path, const char *name)
{
    FILE *f = fopen(path, "re");
    char *line = NULL, file[96];
    size_t size = 0;
    bool found = false;

    if (f == NULL)
        return false;
    snprintf(file, sizeof file, "/%s.ko", name);
    while (!found && getline(&line, &size, f) >= 0) {
        line[strcspn(line, ":\n")] = '\0';
        const char *at = strstr(line, file);
        found = at != NULL && strchr(at + 1, '/') == NULL;
    }
    free(line);
    (void)fclose(f);
    return found;
}

bool doctor_has_module(const char *name)
{
    static const char *const lists[] = {"modules.builtin", "modules.dep"};
    struct utsname u;
    char path[512];

    snprintf(path, sizeof path, "/sys/module/%s", name);
    if (access(path, F_OK) == 0)
        return true;
    if (uname(&u) < 0)
        return false;
    for (size_t i = 0; i < array_len(lists); i++) {
        snprintf(path, sizeof path, "/lib/modules/%s/%s", u.release, lists[i]);
        if (list_names(path, name))
            return true;
    }
    return false;
}

bool doctor_has_program(const char *name, char *ret_path, size_t size)
{
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};

    for (size_t i = 0; i < array_len(dirs); i++) {
        snprintf(ret_path, size, "%s/%s", dirs[i], name);
        if (access(ret_path, X_OK) == 0)
            return true;
    }
    return false;
}

void doctor_existing_parent(const char *path, char *out, size_t size)
{
    struct stat st;

    snprintf(out, size, "%s", path);
    while (stat(out, &st) < 0 || !S_ISDIR(st.st_mode)) {
        char *slash = strrchr(out, '/');
        if (slash == NULL || slash == out) {
            snprintf(out, size, "/");
            return;
        }
        *slash = '\0';
    }
}
