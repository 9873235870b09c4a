/*
 * source.h - the bytes of an archive: read from a pipe, decompressed, hashed and counted
 *
 * Every wait ends: on data, on the end of the connection that asked for the job, or with the role.
 */
#ifndef QS_IMAGE_SOURCE_H
#define QS_IMAGE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct source;

/*
 * Reads from `fd` and gives up as soon as `conn` is closed by its peer or `alive`, the read end of a pipe whose
 * write end the role holds, is. Descriptors are borrowed. NULL with *e filled if the bytes cannot be an archive.
 */
struct source *source_new(int fd, int conn, int alive, struct err *e);
void source_free(struct source *s);

/* The next uncompressed bytes, borrowed until the next call: their count, 0 at the end, -1 with *e filled. */
ssize_t source_read(struct source *s, const void **ret_data, struct err *e);
uint64_t source_bytes(const struct source *s);          /* given out so far */
/* True once the job is to be given up. Cheap enough to ask for each entry. */
bool source_cancelled(struct source *s);
/* SHA-256, in hex, of everything given out; to be called once, at the end. */
int source_digest(struct source *s, char ret_hex[65], struct err *e);

#endif
