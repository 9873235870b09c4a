/*
 * validate.h - are the values of a keeper message acceptable?
 *
 * Called by request.c on every message before anything is done. The node has checked already, but it
 * handles strangers' bytes, so its word is not enough here.
 */
#ifndef QS_KEEPER_VALIDATE_H
#define QS_KEEPER_VALIDATE_H

#include <stdbool.h>

#include "base/err.h"
#include "ipc/keeper_proto.h"

#define DISK_BYTES_MIN (1LL << 20)
#define DISK_BYTES_MAX (1LL << 50)
#define LOG_BYTES_MAX (1LL << 40)
#define SPOOL_BYTES_MIN (1LL << 20)
#define WALL_MS_MAX 253402300799000LL /* the end of the year 9999 */

int validate_create(const struct keeper_create *m, struct err *e);
int validate_tree(const struct keeper_tree *m, struct err *e);
int validate_destroy(const struct keeper_destroy *m, struct err *e);
int validate_limits(const struct keeper_limits *m, struct err *e);
int validate_layer(const struct keeper_layer *m, struct err *e);

bool validate_is_hostname(const char *text); /* RFC 1123, at most 63 bytes */

#endif
