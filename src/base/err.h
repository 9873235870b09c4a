/*
 * err.h - the error object that every fallible function above the leaves fills in
 *
 * Contract: the error comes last and may be NULL; a function that fails fills it and returns -1
 * (or NULL); on success it leaves it alone. The object is plain and fixed-size: no allocation, no
 * free, it crosses forks and sockets. The message is lower case, has no full stop, and names the
 * object and the value.
 */
#ifndef QS_BASE_ERR_H
#define QS_BASE_ERR_H

#include <stdbool.h>

enum err_code {
    ERR_OK = 0,
#define ERROR(sym, code, http, grpc, retry, meaning, hint) ERR_##sym,
#include "base/errors.def"
#undef ERROR
    ERR_MAX_
};

struct err {
    enum err_code code;
    int sys_errno;          /* 0, or the errno behind it */
    char param[64];         /* the request field at fault, "" if none */
    char message[320];
    char hint[160];         /* "" = the table's */
};

/* One row of errors.def. */
struct err_row {
    enum err_code code;
    const char *name;       /* "not_found" */
    int http_status;
    int grpc_status;
    bool retryable;
    const char *meaning;
    const char *hint;
};

/* The row of `code`; ERR_OK and values out of range give the row of ERR_INTERNAL. */
const struct err_row *err_row(enum err_code code);

/* The code of a name such as "not_found"; ERR_INTERNAL for an unknown one. */
enum err_code err_code_from_name(const char *name);

/* Fill *e (if not NULL) and return -1. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, naming the request field at fault. */
int err_param(struct err *e, enum err_code code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* From an errno (positive): picks a code, appends ": <strerror>" to the message. Returns -1. */
int err_sys(struct err *e, int sys_errno, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "<context>: " before the message. Returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void err_hint(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
