/*
 * rest.h - private to rest: what routing, checking and answering share
 */
#ifndef QS_API_REST_REST_H
#define QS_API_REST_REST_H

#include "api/rest/op.h"
#include "base/buf.h"

#define ROUTE_PARAMS 3              /* "{id}" parts of a path */

struct route_param {
    const char *name;               /* of the row's path; not NUL-terminated */
    size_t name_len;
    const char *value;              /* of the request's path, encoded; not NUL-terminated */
    size_t value_len;
};

struct route_match {
    const struct op *op;            /* NULL: no row has path and method */
    bool is_path;                   /* some row has the path */
    char allow[64];                 /* methods of the path, for the Allow header */
    struct route_param params[ROUTE_PARAMS];
    size_t nparams;
};

void route_find(const char *method, const char *path, struct route_match *ret);

/* Decodes %XX, and '+' as a space when asked; out has room for n + 1 bytes. The length, or -1
 * for a bad escape or a NUL. */
int percent_decode(const char *p, size_t n, bool plus_is_space, char *out);

struct query_param {
    const char *name;
    const char *value;
};

#define QUERY_PARAMS_MAX 2100       /* LIMIT_ENVC variables of an image, and some */

/* Splits in place (text is writable, as long as the params are used). ERR_MALFORMED,
 * ERR_TOO_LARGE. */
int query_split(char *text, struct query_param **ret, size_t *ret_n, struct err *e);

/* Every parameter against the row's fields. */
int check_query(const struct op *op, const struct query_param *q, size_t n, struct err *e);
/* Every member of the object against the row's fields. */
int check_body(const struct op *op, const json_t *body, struct err *e);
/* A body of js_parse_reals: -1 with the field whose number is too large, 0 if that is none of
 * the row's. */
int check_overflow(const struct op *op, const json_t *body, struct err *e);
/* Parses and checks a JSON body; "" counts as {}. The caller owns the result; NULL with the
 * error. */
json_t *check_json(const struct op *op, const void *p, size_t n, struct err *e);
/* The shape of "{id}" and the like; a shape that no object has is ERR_NOT_FOUND. */
int check_param(const struct op *op, const char *name, size_t name_len, const char *value, struct err *e);

#endif
