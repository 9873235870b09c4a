/*
 * fs_ask.h - an operation on files with a small answer: the helper's stdout is JSON or nothing
 *
 * As node_ask.h: failures answer the call, a client that leaves ends everything; while it is open it owns c->user and
 * c->on_gone.
 */
#ifndef QS_API_REST_FS_ASK_H
#define QS_API_REST_FS_ASK_H

#include "api/rest/op.h"

/* `out` is borrowed; NULL when the helper said nothing. Must answer the call. */
typedef void (*fs_answer_fn)(struct call *c, const json_t *out);

/* `args` is consumed. `input` (may be NULL) becomes the helper's stdin. */
void fs_ask(struct call *c, const char *op, json_t *args, const char *path, const char *input, fs_answer_fn fn);

/* {"path": ...} from the query parameter `path`. */
json_t *fs_query_path(const struct call *c);
/* The path `name` or `name_b64` of the body into args[key]; -1 with the error. */
int fs_body_path(const struct call *c, const char *name, json_t *args, const char *key, struct err *e);
/* The same from any object (an operation of a batch). */
int fs_object_path(const json_t *from, const char *name, json_t *args, const char *key, struct err *e);
/* "0644" into args["mode"], checked; absent is fine. */
int fs_put_mode(const char *text, json_t *args, struct err *e);

/* An entry of the API from one of the helper's; the caller owns it. */
json_t *fs_entry(const json_t *entry);
/* {"items", "next"} from a list of at most limit + 1 entries; next is the path to go on after. */
json_t *fs_entries(const json_t *list, size_t limit);

#endif
