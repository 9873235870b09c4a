/*
 * policies.h - network policies with names: versions, and the sandboxes that follow them
 *
 * A sandbox that names a policy without a version follows the name: policies_apply brings it to the latest version. One that
 * names a version stays there, and so does one whose policy was replaced by something else.
 */
#ifndef QS_CORE_POLICIES_H
#define QS_CORE_POLICIES_H

#include "core/core.h"
#include "json/json.h"
#include "store/store.h"

#define POLICY_VERSIONS 100         /* of a name that are kept, the latest */

/* Where a policy comes from; name "" = it was given as it is. */
struct policy_origin {
    char name[LIMIT_NAME + 1];
    uint32_t version;
    bool follows;
};

/* Makes the next version; the latest one again, with *ret_is_new false, where nothing has changed. */
int policies_put(struct core *c, const char *name, const json_t *policy, const char *token_id, struct policy_row *ret,
                 bool *ret_is_new, struct err *e);
/* Fails with ERR_CONFLICT while living sandboxes follow it, unless `force`. */
int policies_remove(struct core *c, const char *name, bool force, struct err *e);

/* {"name": ..., "version": ...} */
bool policy_is_reference(const json_t *network);
/* The policy that a reference names, or the one that it is; the caller owns it. NULL with the error, about "network". */
json_t *policies_resolve(struct core *c, const json_t *network, struct policy_origin *ret, struct err *e);
/* As in a sandbox's row. */
json_t *policy_origin_json(const struct policy_origin *o);
void policy_origin_read(const json_t *j, struct policy_origin *ret);

/*
 * Puts the latest version in force in every sandbox that follows the name, one after the other. `done` has been called for all
 * when fn is: for each one its revision, or why it could not be; not for those that turned out not to follow it any more.
 */
struct policies_apply_ops {
    void (*each)(void *ctx, const char *sandbox, uint64_t revision, const struct err *e);
    void (*done)(void *ctx, uint32_t version, const struct err *e);
};
void policies_apply(struct core *c, const char *name, bool keep, const struct policies_apply_ops *ops, void *ctx);

#endif
