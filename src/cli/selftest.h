/*
 * selftest.h - the parts of `quicksand selftest --isolation`
 *
 * cmd_selftest.c leads; selftest_local.c starts the program quicksand-escape on this machine, selftest_sandbox.c in a
 * sandbox; selftest_secrets.c looks for secrets in what could be read there, selftest_paths.c races the file API. Each
 * trial is judged by what this side has seen, and by the attempt's own word only where nothing else can be known.
 */
#ifndef QS_CLI_SELFTEST_H
#define QS_CLI_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/client.h"

#define TOKEN_MAX 16            /* "qse-" and 8 hex digits */

struct trial {
    char *name, *tries;
    char *expected;             /* of the sandbox; "A|B" */
    char *reach;                /* of the control beside "ok"; "-" = nothing (tests/escape/escape.h) */
    char *control, *inside;     /* what came of it; NULL = was not tried */
    char *note;                 /* what a person should know; NULL */
};

struct trials {
    struct trial *items;
    size_t n;
};

struct trial *trial_add(struct trials *t, const char *name, const char *tries, const char *expected, const char *reach);
struct trial *trial_find(const struct trials *t, const char *name);
void trial_set(char **field, const char *text);                 /* replaces it */
void trials_done(struct trials *t);

struct selftest {
    struct client cl;
    struct trials trials;
    const char *program;        /* quicksand-escape on this machine */
    const char *image;
    struct arg_list *secrets;   /* files whose first line must not be met */
    bool controls;              /* we are root, so that they can be run */
    char attacker[64], neighbour[64];                           /* sandbox ids */
    char token_host[TOKEN_MAX], token_neighbour[TOKEN_MAX], token_control[TOKEN_MAX];
    pid_t victim, helper;       /* local processes; 0 = none */
    int victim_in, victim_out;  /* the host victim's streams */
    long victim_neighbour_offset;                               /* of its output that was read */
};

/* --- selftest_local.c */
char *local_program(const char *given, struct err *e);          /* where it is; the caller frees */
/* Runs it to its end with these words after its name; its stdout in *out. 0 for exit status 0. */
int local_run(const struct selftest *s, const char *const *words, struct buf *out, struct err *e);
int local_victim_start(struct selftest *s, struct err *e);
char *local_victim_ask(struct selftest *s);                     /* "untouched" or what was done; the caller frees */
void local_end(struct selftest *s);

/* --- selftest_sandbox.c */
int sandboxes_make(struct selftest *s, struct err *e);
void sandboxes_remove(struct selftest *s);
/* Runs the program in the attacker and takes all of its stdout. */
int sandbox_run(struct selftest *s, const char *const *words, struct buf *out, struct err *e);
/* Starts it there without waiting; the exec's id in out[64]. */
int sandbox_start(struct selftest *s, const char *sandbox, const char *const *words, bool use_stdin, char *out,
                  struct err *e);
int neighbour_victim_start(struct selftest *s, struct err *e);
char *neighbour_victim_ask(struct selftest *s, struct err *e);  /* the caller frees; NULL = with an error */
/* A local process that keeps a file helper at work in the attacker until local_end(). */
int helper_keep(struct selftest *s, struct err *e);

/* --- selftest_secrets.c */
void secrets_list(struct selftest *s);                          /* adds their trials */
int secrets_try(struct selftest *s, struct err *e);             /* controls and sandbox */

/* --- selftest_paths.c */
void paths_list(struct selftest *s);
int paths_try(struct selftest *s, struct err *e);

#endif
