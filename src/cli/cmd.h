/*
 * cmd.h - the commands: one file each, listed in main.c
 *
 * A command gets its own words (argv[0] is its name) and returns the exit code. Its help is printed when -h or --help is
 * among its options; usage errors and failures are one line on stderr.
 */
#ifndef QS_CLI_CMD_H
#define QS_CLI_CMD_H

#include <stdbool.h>

#include "base/err.h"
#include "cli/args.h"
#include "cli/client.h"
#include "json/json.h"

enum {
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_OURS = 125,            /* of run, exec and sh: the failure is ours, not the command's */
    EXIT_CANNOT_EXECUTE = 126,
    EXIT_NOT_FOUND = 127,
};

int cmd_run(int argc, char **argv);
int cmd_create(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_sh(int argc, char **argv);
int cmd_port(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_cp(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_kill(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_build(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_secret(int argc, char **argv);
int cmd_token(int argc, char **argv);
int cmd_selftest(int argc, char **argv);
int cmd_policy(int argc, char **argv);

/* What every command's parsing comes to: */
struct cmd {
    const char *usage;          /* "ps [options]" */
    const char *about;          /* one line */
    const struct arg *args;     /* without -h, --help */
    size_t nargs;
    bool mixed;                 /* see args_parse */
    int min_words, max_words;   /* -1 = any number */
    int usage_code;             /* exit code of a usage error */
};
/* Parses; -1 = go on, else the exit code. */
int cmd_parse(const struct cmd *d, int *argc, char **argv);

/* Says how the command is used, on stderr; its usage_code. */
int cmd_usage(const struct cmd *d);

/* A command that is a family: "image import", "image ls". */
struct subcommand {
    const char *name;
    int (*fn)(int argc, char **argv);
    const char *about;
};
/* Runs the one that argv[1] names; without one, or with --help, lists them. The exit code. */
int cmd_family(const char *family, const struct subcommand *table, size_t n, int argc, char **argv);

/* "quicksand: message (hint)" on stderr; returns code. */
int cmd_fail(const struct err *e, int code);

/* --- images and tokens (collection.c) ------------------------------------------------------------------------------- */

/* The objects of a collection ("/v1/images"); -1 = *ret_page is there and the caller's, else the exit code. */
int collection_get(const struct cmd *d, const char *collection, int argc, char **argv, json_t **ret_page);
/* Removes what each word names; tries all of them. The exit code. */
int collection_remove(const struct cmd *d, const char *collection, int argc, char **argv);

/* --- options that several commands have (cmd_spec.c) ---------------------------------------------------------------- */

/* Of a sandbox; strings as typed. */
struct sandbox_args {
    const char *image, *app, *name, *cpu, *memory, *oom, *pids, *nofile, *disk, *timeout, *idle, *network;
    struct arg_list tags, domains;
    bool user_namespaces, no_new_privileges;
};
#define SANDBOX_ARGS(s)                                                                                               \
    {'I', "image", ARG_TEXT, &(s).image, "IMAGE", "image id or name (default base)"},                                 \
    {0, "name", ARG_TEXT, &(s).name, "NAME", "name, unique among the app's live sandboxes"},                          \
    {0, "app", ARG_TEXT, &(s).app, "APP", "group of sandboxes (default default)"},                                    \
    {0, "cpu", ARG_TEXT, &(s).cpu, "CORES", "limit of processor time, e.g. 1.5"},                                     \
    {'m', "memory", ARG_TEXT, &(s).memory, "MB", "limit of memory"},                                                  \
    {0, "oom", ARG_TEXT, &(s).oom, "WHAT", "ends when memory is out: exec (default), sandbox or process"},            \
    {0, "pids", ARG_TEXT, &(s).pids, "N", "limit of processes and threads"},                                          \
    {0, "nofile", ARG_TEXT, &(s).nofile, "N", "limit of open files of a process"},                                    \
    {0, "disk", ARG_TEXT, &(s).disk, "MB", "limit of what may be written"},                                           \
    {0, "timeout", ARG_TEXT, &(s).timeout, "SECONDS", "longest life of the sandbox; 'none' for no limit"},            \
    {0, "idle-timeout", ARG_TEXT, &(s).idle, "SECONDS", "end after so long without activity; 'none' for never"},      \
    {0, "tag", ARG_LIST, &(s).tags, "KEY=VALUE", "a tag; may be repeated"},                                           \
    {0, "network", ARG_TEXT, &(s).network, "POLICY", "way out: block (default), open, or a policy as JSON"},          \
    {0, "allow-domain", ARG_LIST, &(s).domains, "DOMAIN", "a way out to this alone; may be repeated"},                \
    {0, "user-namespaces", ARG_FLAG, &(s).user_namespaces, NULL, "let programs bring a sandbox of their own"},        \
    {0, "no-new-privileges", ARG_FLAG, &(s).no_new_privileges, NULL, "sudo and other setuid programs gain nothing"}

/* Of a command. */
struct command_args {
    bool use_stdin, tty;
    struct arg_list env;
    const char *workdir, *user;
};
#define COMMAND_ARGS(c)                                                                                               \
    {'i', "interactive", ARG_FLAG, &(c).use_stdin, NULL, "pass our stdin on"},                                        \
    {'t', "tty", ARG_FLAG, &(c).tty, NULL, "give the command a terminal"},                                            \
    {'e', "env", ARG_LIST, &(c).env, "NAME=VALUE", "set a variable; NAME alone takes ours; may be repeated"},         \
    {'w', "workdir", ARG_TEXT, &(c).workdir, "DIR", "working directory"},                                             \
    {'u', "user", ARG_TEXT, &(c).user, "USER", "name or id, with optional :group"}

static inline void sandbox_args_done(struct sandbox_args *s)
{
    arg_list_done(&s->tags);
    arg_list_done(&s->domains);
}

static inline void command_args_done(struct command_args *c)
{
    arg_list_done(&c->env);
}

#define auto_sandbox_args __attribute__((cleanup(sandbox_args_done)))
#define auto_command_args __attribute__((cleanup(command_args_done)))

/* The body of a create or an exec, to be added to; NULL with an error. The caller owns it. */
/* The field "network": block, open or a policy as JSON; or domains alone. */
int cmd_network(json_t *body, const char *network, const struct arg_list *names_only, struct err *e);
json_t *sandbox_body(const struct sandbox_args *s, struct err *e);
json_t *command_body(const struct command_args *c, int argc, char **argv, struct err *e);

/* Starts the command in the sandbox, attaches, waits; the exit code for the shell (exec.c). */
int exec_attached(struct client *cl, const char *sandbox, const struct command_args *c, int argc, char **argv);

#endif
