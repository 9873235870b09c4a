/*
 * decision_reader.h - what the network policy of a sandbox decided, line by line as it happens
 *
 * For both dialects. A sandbox without a network has no lines, and its reader ends at once.
 */
#ifndef QS_API_SHARED_DECISION_READER_H
#define QS_API_SHARED_DECISION_READER_H

#include "core/core.h"
#include "json/json.h"
#include "node.pb-c.h"

struct decision_reader;

struct decision_reader_ops {
    void (*on_decision)(void *ctx, const Quicksand__Node__Decision *d);     /* does not free the reader */
    /* Nothing will come any more; the reader may be freed in it. Never before decision_reader_new has returned. */
    void (*on_end)(void *ctx);
};

#define DECISIONS_FROM_NOW UINT64_MAX

/* Lines after number `after`. Without `follow` those that are there, with it until decision_reader_finish. */
struct decision_reader *decision_reader_new(struct core *c, const char *id, uint64_t after, bool follow,
                                            const struct decision_reader_ops *ops, void *ctx);
/* What is there is still read, then on_end comes; at once, if it has come already. */
void decision_reader_finish(struct decision_reader *r);
void decision_reader_free(struct decision_reader *r);       /* accepts NULL */

json_t *decision_json(const Quicksand__Node__Decision *d);

#endif
