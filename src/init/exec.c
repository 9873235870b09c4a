/*
 * exec.c - one EXEC message becomes one process
 *
 * Called by serve.c. Every message is answered with one STARTED, whatever happens.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "init/init.h"
#include "init/spawn.h"
#include "init/user.h"
#include "ipc/exec_spec.h"
#include "sys/fd.h"

/* All pointers of a spec, and the environment with the three variables that we may add. */
static const char *arrays[LIMIT_ARGC + LIMIT_ENVC + 2];
static const char *environment[LIMIT_ENVC + 4];
static struct user user;

static bool env_has(const struct exec_spec *spec, const char *name)
{
    size_t n = strlen(name);

    for (uint32_t i = 0; i < spec->envc; i++)
        if (strncmp(spec->envp[i], name, n) == 0 && spec->envp[i][n] == '=')
            return true;
    return false;
}

static const char **environment_make(const struct exec_spec *spec, const struct user *u)
{
    static char home[LIMIT_PATH + 8], name[USER_NAME_SIZE + 8], logname[USER_NAME_SIZE + 8];
    size_t n = spec->envc;

    memcpy(environment, spec->envp, n * sizeof environment[0]);
    if (!env_has(spec, "HOME")) {
        snprintf(home, sizeof home, "HOME=%s", u->home);
        environment[n++] = home;
    }
    if (!env_has(spec, "USER")) {
        snprintf(name, sizeof name, "USER=%s", u->name);
        environment[n++] = name;
    }
    if (!env_has(spec, "LOGNAME")) {
        snprintf(logname, sizeof logname, "LOGNAME=%s", u->name);
        environment[n++] = logname;
    }
    environment[n] = NULL;
    return environment;
}

/* Sorts the descriptors of the message by its flags. 0 or -EINVAL. */
static int descriptors_take(const struct init *in, const struct init_exec *x, const struct chan_msg *m,
                            struct spawn *s)
{
    int at = 0;
    int want = (x->flags & INIT_EXEC_CGROUP) != 0;

    s->tty = (x->flags & INIT_EXEC_TTY) != 0;
    if (s->tty)
        want++;
    else
        want += ((x->flags & INIT_EXEC_STDIN) != 0) + ((x->flags & INIT_EXEC_STDOUT) != 0) +
                ((x->flags & INIT_EXEC_STDERR) != 0);
    if (m->nfds != want)
        return -EINVAL;
    if (s->tty) {
        s->stdio[0] = s->stdio[1] = s->stdio[2] = m->fds[at++];
    } else {
        s->stdio[0] = (x->flags & INIT_EXEC_STDIN) != 0 ? m->fds[at++] : in->null;
        s->stdio[1] = (x->flags & INIT_EXEC_STDOUT) != 0 ? m->fds[at++] : in->null;
        s->stdio[2] = (x->flags & INIT_EXEC_STDERR) != 0 ? m->fds[at++] : in->null;
        if ((x->flags & INIT_EXEC_MERGE) != 0)
            s->stdio[2] = s->stdio[1];
    }
    s->cgroup = (x->flags & INIT_EXEC_CGROUP) != 0 ? m->fds[at] : -1;
    return 0;
}

static int fail(struct init_started *r, const char *step, int error)
{
    r->error = error < 0 ? -error : error;
    snprintf(r->step, sizeof r->step, "%s", step);
    return -1;
}

static int run(struct init *in, const struct init_exec *x, void *block, const struct chan_msg *m,
               struct init_started *r)
{
    struct exec_spec spec;
    struct spawn s = {.spec = &spec, .user = &user, .self = in->self, .proc = in->proc};

    int e = exec_spec_decode(&spec, block, x->spec_len, arrays, sizeof arrays / sizeof arrays[0]);
    if (e < 0)
        return fail(r, "spec", e);
    e = descriptors_take(in, x, m, &s);
    if (e < 0)
        return fail(r, "descriptors", e);
    e = user_find(spec.user, &user);
    if (e < 0)
        return fail(r, "user", e);
    if (execs_full(in))
        return fail(r, "execs", EAGAIN);
    s.envp = environment_make(&spec, &user);
    pid_t pid = spawn_run(&s);
    if (pid < 0)
        return fail(r, s.step, s.error);
    execs_add(in, x->seq, pid);
    r->pid = pid;
    return 0;
}

void exec_run(struct init *in, const struct init_exec *x, const struct chan_msg *m)
{
    struct init_started r = {.seq = x->seq};
    uint8_t out[128];

    if (m->map_ == NULL) {
        /* The bytes lie in our own receive buffer, which decoding may change. */
        (void)run(in, x, (void *)(uintptr_t)x->spec, m, &r);
    } else {
        void *copy = mmap(NULL, x->spec_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED) {
            (void)fail(&r, "spec", errno);
        } else {
            memcpy(copy, x->spec, x->spec_len);
            (void)run(in, x, copy, m, &r);
            (void)munmap(copy, x->spec_len);
        }
    }
    reply(in, INIT_STARTED, out, init_started_encode(&r, out, sizeof out));
}
