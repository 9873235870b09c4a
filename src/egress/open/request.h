/*
 * request.h - the head of a request that is changed on its way, of HTTP/1 and HTTP/2 alike
 *
 * Texts may be secrets once something was put in: request_done wipes them.
 */
#ifndef QS_EGRESS_OPEN_REQUEST_H
#define QS_EGRESS_OPEN_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define REQUEST_FIELDS_MAX 256

struct request_field {
    char *name, *value;             /* owned */
};

struct request {
    char *method, *target;          /* owned; target as it was sent, with scheme and host if it had them */
    bool is_http10;
    size_t nfields;
    struct request_field fields[REQUEST_FIELDS_MAX];
};

/* Of a head that head_parse found good; false: more fields than are followed. request_done in any case. */
bool request_from_head(struct request *r, const uint8_t *p, size_t n);
void request_done(struct request *r);
bool request_add(struct request *r, const char *name, const char *value);
/* Names are compared without regard to case. NULL: there is none. */
const char *request_get(const struct request *r, const char *name);
/* In place of all that are there; with a new name at the end. False: too many. */
bool request_set(struct request *r, const char *name, const char *value);
void request_remove(struct request *r, const char *name);
/* Those that many servers take for the same: of an underscore and a hyphen they see one. */
void request_remove_alike(struct request *r, const char *name);
void request_set_target(struct request *r, const char *target);
/* From the slash on; "/" if there is none. */
const char *request_path(const struct request *r);
/* As a head of HTTP/1, into a buffer that is empty. */
void request_write(const struct request *r, struct buf *out);

#endif
