/*
 * roles.c - control, node, egress and image: started, started again, stopped
 */
#include "keeper/roles.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "keeper/spawner.h"
#include "sys/fd.h"

#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS 5000
#define STEADY_MS 10000 /* after this long a role counts as well again */

struct role_state {
    pid_t pid;  /* 0 = not running */
    bool asked; /* the spawner has been asked */
    int64_t started_ms;
    int64_t backoff_ms; /* 0 = the next restart is immediate */
    struct timer restart;
};

static struct role_state states[ROLES];
static int image_userns = -1;

const char *role_name(enum role r)
{
    static const char *const names[ROLES] = {"control", "node", "egress", "image"};

    return names[r];
}

static void schedule(struct role_state *s)
{
    if (keeper.stopping)
        return;
    if (clock_boot_ms() - s->started_ms > STEADY_MS)
        s->backoff_ms = 0;
    evloop_timer(&keeper.loop, &s->restart, s->backoff_ms);
    s->backoff_ms = s->backoff_ms == 0 ? BACKOFF_FIRST_MS : s->backoff_ms * 2;
    if (s->backoff_ms > BACKOFF_MAX_MS)
        s->backoff_ms = BACKOFF_MAX_MS;
}

static void start_now(struct timer *t)
{
    struct role_state *s = container_of(t, struct role_state, restart);

    if (keeper.stopping)
        return;
    s->started_ms = clock_boot_ms();
    s->asked = spawner_start_role((uint32_t)(s - states)) == 0;
    if (!s->asked)
        schedule(s);
}

void roles_start(void)
{
    for (int i = 0; i < ROLES; i++) {
        states[i].restart.due = start_now;
        start_now(&states[i].restart);
    }
}

int roles_image_userns(void)
{
    return states[ROLE_IMAGE].pid > 0 ? image_userns : -1;
}

void roles_started(enum role r, pid_t pid, int error, int userns)
{
    struct role_state *s = &states[r];

    if (r == ROLE_IMAGE) {
        fd_close(&image_userns);
        image_userns = take_fd(&userns);
    }
    fd_close(&userns);
    s->asked = false;
    if (error != 0) {
        log_error("role", "name=%s cannot be started: errno=%d", role_name(r), error);
        schedule(s);
        return;
    }
    s->pid = pid;
    log_info("role", "name=%s pid=%d started", role_name(r), (int)pid);
    if (keeper.stopping)
        (void)kill(pid, SIGTERM);
}

void roles_exited(pid_t pid, int status)
{
    for (int i = 0; i < ROLES; i++) {
        struct role_state *s = &states[i];
        if (s->pid != pid)
            continue;
        s->pid = 0;
        if (!keeper.stopping)
            log_warn("role", "name=%s pid=%d ended %s=%d", role_name((enum role)i), (int)pid,
                     WIFSIGNALED(status) ? "signal" : "code",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        schedule(s);
        return;
    }
}

static void signal_all(int sig)
{
    for (int i = 0; i < ROLES; i++)
        if (states[i].pid > 0)
            (void)kill(-states[i].pid, sig);
}

static void grace_over(struct timer *t)
{
    (void)t;
    signal_all(SIGKILL);
}

void roles_stop(void)
{
    static struct timer grace = {.due = grace_over};

    for (int i = 0; i < ROLES; i++)
        evloop_timer_stop(&keeper.loop, &states[i].restart);
    signal_all(SIGTERM);
    evloop_timer(&keeper.loop, &grace, 3000);
}

bool roles_all_gone(void)
{
    for (int i = 0; i < ROLES; i++)
        if (states[i].pid > 0 || states[i].asked)
            return false;
    return true;
}
