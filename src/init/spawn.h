/*
 * spawn.h - start one command
 */
#ifndef QS_INIT_SPAWN_H
#define QS_INIT_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "init/user.h"
#include "ipc/exec_spec.h"

struct spawn {
    const struct exec_spec *spec;       /* borrowed, as all else */
    const char **envp;                  /* with HOME and the like */
    const struct user *user;
    int stdio[3];                       /* become 0, 1, 2 */
    bool tty;                           /* stdio[0] is the controlling terminal */
    int cgroup;                         /* directory, or -1 */
    int proc;                       /* root of procfs */
    int self;                           /* our own program, for spec->helper */
    /* Written by the child, which shares our memory until it executes. */
    int error;
    const char *step;
};

/* The child's pid (it has executed, or died), or -1 with s->error and s->step set. */
pid_t spawn_run(struct spawn *s);

#endif
