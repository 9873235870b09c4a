/*
 * args.h - options of a command: -x, --long, values, lists; combined short flags; "--" ends them
 */
#ifndef QS_CLI_ARGS_H
#define QS_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define auto_arg_list __attribute__((cleanup(arg_list_done)))

enum arg_kind {
    ARG_FLAG,               /* bool * */
    ARG_TEXT,               /* const char ** */
    ARG_LIST,               /* struct arg_list *; may be repeated */
};

struct arg_list {
    const char **items;     /* owned; the texts are argv's */
    size_t n;
};

void arg_list_done(struct arg_list *list);

struct arg {
    char letter;            /* 0 = none */
    const char *name;       /* without "--" */
    enum arg_kind kind;
    void *to;
    const char *value;      /* how the help calls the value; NULL for flags */
    const char *help;
};

/*
 * Takes options from argv[1] on. With `mixed` they may stand anywhere before "--"; otherwise the first word that is none
 * ends them, so that a command's own options stay its own. The other words are moved to argv[0..*argc-1]; *argc is
 * their number.
 */
int args_parse(const struct arg *table, size_t n, bool mixed, int *argc, char **argv, struct err *e);

/* Whole numbers and decimals as the API wants them; naming the option in the error. */
int args_int(const char *option, const char *text, long long *ret, struct err *e);
int args_number(const char *option, const char *text, double *ret, struct err *e);

void args_help(const struct arg *table, size_t n);  /* to stdout */

#endif
