/*
 * dockerfile.h - the text of a Dockerfile as instructions
 *
 * Pure: no file, no network, no sandbox. Errors name line and column. Used by the builder (core/build.c); fuzzed.
 */
#ifndef QS_CORE_DOCKERFILE_DOCKERFILE_H
#define QS_CORE_DOCKERFILE_DOCKERFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "json/json.h"

#define DF_TEXT_MAX (1U << 20)
#define DF_INSTRUCTIONS_MAX 10000
#define DF_HEREDOCS_MAX 8
#define DF_FLAGS_MAX 16

enum df_kind {
    DF_ADD,
    DF_ARG,
    DF_CMD,
    DF_COPY,
    DF_ENTRYPOINT,
    DF_ENV,
    DF_EXPOSE,
    DF_FROM,
    DF_HEALTHCHECK,
    DF_LABEL,
    DF_MAINTAINER,
    DF_ONBUILD,
    DF_RUN,
    DF_SHELL,
    DF_STOPSIGNAL,
    DF_USER,
    DF_VOLUME,
    DF_WORKDIR,
};

struct df_heredoc {
    char *name;                 /* its end mark */
    bool expand;                /* the mark was not quoted */
    char *text;
};

struct df_flag {
    char *name, *value;         /* value "" for a flag without one */
};

struct df_instruction {
    enum df_kind kind;
    int line;                   /* of its first word, from 1 */
    char *text;                 /* what follows keyword and flags, continued lines joined */
    char *source;               /* the whole instruction on one line, for logs */
    json_t *json;               /* the exec form: an array of strings; NULL = another form */
    struct df_flag flags[DF_FLAGS_MAX];
    size_t nflags;
    struct df_heredoc heredocs[DF_HEREDOCS_MAX];
    size_t nheredocs;
};

struct df_file {
    char escape;                /* '\\' or '`' */
    struct df_instruction *list;
    size_t n;
};

int df_parse(const char *text, size_t n, struct df_file *ret, struct err *e);
void df_done(struct df_file *f);
/* One instruction, without its own line: what ONBUILD keeps. */
int df_parse_one(const char *text, char escape, struct df_file *ret, struct err *e);
const char *df_flag(const struct df_instruction *in, const char *name);     /* NULL = not given */
/* ERR_INVALID if the instruction has a flag that is not in the list ("from\0chown\0"). */
int df_check_flags(const struct df_instruction *in, const char *const *names, size_t n, struct err *e);
const char *df_name(enum df_kind kind);     /* "COPY" */
/* Fills *e: "line 3: ...". Returns -1. */
int df_fail(const struct df_instruction *in, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* --- words.c: quoting and variables ------------------------------------------------------------------------------------ */

/* The value of a variable, NULL = unset; borrowed until the next call. */
typedef const char *(*df_lookup_fn)(void *ctx, const char *name, size_t n);

struct df_shell {
    char escape;
    df_lookup_fn lookup;        /* NULL: variables stay as they are written */
    void *ctx;
    bool keeps_quotes;          /* a here-document: they are text */
};

/* Expands and takes the quotes away; one text. The caller frees. */
char *df_expand(const struct df_shell *sh, const char *text, struct err *e);
/* The same, divided at blanks outside of quotes; an array of strings, the caller's. */
json_t *df_words(const struct df_shell *sh, const char *text, struct err *e);
/* "A=1 B='2 3'" as pairs in order: an array of arrays of two strings. Also the old form "A 1 and so on". */
json_t *df_pairs(const struct df_shell *sh, const char *text, struct err *e);

#endif
