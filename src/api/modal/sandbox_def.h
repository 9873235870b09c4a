/*
 * sandbox_def.h - a client's definition of a sandbox as core's specification
 *
 * Every option is carried over, answered with a warning where leaving it out does no harm, or refused by name.
 */
#ifndef QS_API_MODAL_SANDBOX_DEF_H
#define QS_API_MODAL_SANDBOX_DEF_H

#include "api/modal/mcall.h"
#include "base/modal_ids.h"
#include "core/sandbox.h"

/* The environment of a request, lowest first; each may be absent. */
struct def_env {
    M(StringMap) *ephemeral;
    M(SecretSource) *const *sources;
    size_t nsources;
};

struct sandbox_def {
    struct sandbox_spec spec;           /* points into this object and into the request */
    json_t *command, *env, *tags, *probe, *ports, *inbound_allow, *network, *dialect; /* owned */
};

/* `app` is what sandboxes of the app carry. */
int sandbox_def_read(struct mcall *c, const M(Sandbox) *d, const struct def_env *env, M(SandboxTag) *const *tags,
                     size_t ntags, const char *app, enum modal_generation g, struct sandbox_def *ret, struct err *e);
void sandbox_def_done(struct sandbox_def *d);

json_t *sandbox_tags_json(M(SandboxTag) *const *tags, size_t n);

#endif
