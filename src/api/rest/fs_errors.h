/*
 * fs_errors.h - what the file helper says on stderr, as an error of ours
 */
#ifndef QS_API_REST_FS_ERRORS_H
#define QS_API_REST_FS_ERRORS_H

#include <stddef.h>

#include "base/err.h"
#include "json/json.h"

/* "NotFound" and the like; ERR_FS_IO for one that is not known. */
enum err_code fs_error_code(const char *kind);
/* From {"error_kind", "message", "detail"?}. Always returns -1. */
int fs_error_from_json(const json_t *o, const char *path, struct err *e);
/* From the whole of stderr of a helper that ended with `code`. Always returns -1. */
int fs_error_from_text(const void *p, size_t n, int code, const char *path, struct err *e);

#endif
