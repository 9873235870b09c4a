/*
 * defaults.h - what execs of a sandbox inherit, kept in data_dir/node/<id>
 *
 * Written before the keeper is asked for the sandbox, so that whatever was made has its defaults;
 * removed with the sandbox.
 */
#ifndef QS_NODE_DEFAULTS_H
#define QS_NODE_DEFAULTS_H

#include "base/err.h"
#include "node.pb-c.h"

struct defaults_store;

/* state_fd stays the caller's. */
struct defaults_store *defaults_store_new(int state_fd);
void defaults_store_free(struct defaults_store *s);
int defaults_save(struct defaults_store *s, const char *sandbox, const Quicksand__Node__Defaults *d,
                  struct err *e);
/* Borrowed until the next call of this header; NULL if there are none. */
const Quicksand__Node__Defaults *defaults_get(struct defaults_store *s, const char *sandbox);
void defaults_remove(struct defaults_store *s, const char *sandbox);

#endif
