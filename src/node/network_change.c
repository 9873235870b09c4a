/*
 * network_change.c - another policy for a sandbox that lives, and other values of the secrets that its policy names
 */
#include "node/network_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "ipc/policy_wire.h"
#include "node/modal/router.h"
#include "node/ops.h"
#include "node/trust.h"

#define CHANGE_MS 5000          /* who changes a policy is told if it is not in force by then */

static void on_changed(void *arg, const struct chan_msg *m, const struct err *e)
{
    struct attach *a = arg;

    if (e != NULL && e->code == ERR_NOT_FOUND)
        attach_sockets(a);         /* egress has just come back */
    else
        attach_done(a, m, e);
}

/* A policy that somebody else has put there meanwhile is left alone. */
static int check_follows(const struct attach *a, const struct egress_policy *now, struct err *e)
{
    if (a->if_follows == NULL || (now->follows && strcmp(now->name, a->if_follows) == 0))
        return 0;
    return err_set(e, ERR_PRECONDITION, "the sandbox does not follow the policy %s", a->if_follows);
}

/* Makes the policy that is to be put in force of the one that is. */
static int merge_now(struct attach *a, bool *ret_opens, struct err *e)
{
    auto_free uint8_t *bytes = mem_alloc(NETWORK_FILE_MAX), *out = mem_alloc(LIMIT_POLICY_BYTES);
    Quicksand__Node__Network m = QUICKSAND__NODE__NETWORK__INIT;
    struct egress_policy now;
    struct policy before, after;

    if (network_load(a->network, a->sandbox, bytes, &now, e) < 0)
        return -1;
    if (policy_decode(&before, now.policy, now.policy_len) < 0)
        return err_set(e, ERR_INTERNAL, "the network policy of %s on disk cannot be read", a->sandbox);
    policy_init(&after);
    int r = a->merge(a->op, &before, &after, e);
    m.has_policy = true;
    m.policy.data = out;
    m.policy.len = r == 0 ? policy_encode(&after, out, LIMIT_POLICY_BYTES) : 0;
    *ret_opens = policy_opens_tls(&after);
    policy_done(&before);
    policy_done(&after);
    if (r == 0 && m.policy.len == 0)
        r = err_param(e, ERR_TOO_LARGE, "network", "the policy has more than %d bytes", LIMIT_POLICY_BYTES);
    if (r < 0)
        return -1;
    free(a->policy);
    a->policy = network_message(a->sandbox, &m, 1, &a->policy_len, e);
    return a->policy != NULL ? 0 : -1;
}

static void put_in_force(struct attach *a)
{
    struct network *w = a->network;
    auto_free uint8_t *old = mem_alloc(NETWORK_FILE_MAX), *out = mem_alloc(NETWORK_FILE_MAX);
    struct egress_policy before, now;
    bool opens;
    struct err e;

    if (a->merge != NULL && merge_now(a, &opens, &e) < 0) {
        attach_done(a, NULL, &e);
        return;
    }
    if (egress_policy_decode(&now, a->policy, a->policy_len) < 0)
        err_set(&e, ERR_INTERNAL, "the network policy of %s cannot be read", a->sandbox);
    else if (network_load(w, a->sandbox, old, &before, &e) == 0 && check_follows(a, &before, &e) == 0) {
        now.revision = before.revision + 1;
        size_t n = egress_policy_encode(&now, out, NETWORK_FILE_MAX);
        if (network_store(w, a->sandbox, out, n, &e) == 0) {
            if (network_tell(w, EGRESS_POLICY, &now, NULL, 0, CHANGE_MS, on_changed, a, &e) == 0)
                return;
            /* It cannot be told, so it is not to be found on the disk later. */
            struct err undo;
            n = egress_policy_encode(&before, out, NETWORK_FILE_MAX);
            if (network_store(w, a->sandbox, out, n, &undo) < 0)
                log_error("policy-not-undone", "sandbox=%s error=\"%s\"", a->sandbox, undo.message);
        }
    }
    attach_done(a, NULL, &e);
}

static void on_trusted(void *arg, const struct err *e)
{
    struct attach *a = arg;

    if (e != NULL)
        attach_done(a, NULL, e);
    else
        put_in_force(a);
}

void network_replace(struct op *op, const char *sandbox, const Quicksand__Node__Network *m, const char *if_follows,
                     network_done done)
{
    struct network *w = op->node->network;
    auto_free uint8_t *bytes = NULL;
    struct err e;
    size_t n;

    if (network_check(w, sandbox, &e) < 0 || (bytes = network_message(sandbox, m, 1, &n, &e)) == NULL) {
        done(op, &e);
        return;
    }
    struct network_note *note = network_note_of(m);
    bool opens = note != NULL && note->opens_tls;
    network_note_free(note);
    struct attach *a = attach_new(w, sandbox);
    a->op = op;
    a->done = done;
    a->policy = take_ptr(&bytes);
    a->policy_len = n;
    a->if_follows = if_follows != NULL ? mem_strdup(if_follows) : NULL;
    if (opens)
        trust_place(w->node, w->fd, sandbox, on_trusted, a);
    else
        put_in_force(a);
}

void network_change(struct op *op, const char *sandbox, network_merge merge, network_done done)
{
    struct network *w = op->node->network;
    bool opens = false;
    struct err e;

    if (network_check(w, sandbox, &e) < 0) {
        done(op, &e);
        return;
    }
    struct attach *a = attach_new(w, sandbox);
    a->op = op;
    a->done = done;
    a->merge = merge;
    if (merge_now(a, &opens, &e) < 0) {
        done(op, &e);
        free(a->policy);
        free(a);
    } else if (opens) {
        trust_place(w->node, w->fd, sandbox, on_trusted, a);
    } else {
        put_in_force(a);
    }
}

/* --- secrets --------------------------------------------------------------------------------- */

static bool names_any(const struct network_note *note, const Quicksand__Node__PutSecretsRequest *rq)
{
    if (rq->replace_all)
        return note->secrets.count > 0;
    for (size_t i = 0; i < rq->n_secrets; i++)
        if (rq->secrets[i]->secret_id != NULL && map_get(&note->secrets, rq->secrets[i]->secret_id) != NULL)
            return true;
    return false;
}

struct putting {
    size_t pending;
};

static void put_one(struct op *op, const struct err *e)
{
    struct putting *p = op->state;

    (void)e;                    /* it is in the log, and made good when egress comes back */
    if (--p->pending == 0)
        op_reply_empty(op);
}

/* The same policy once more, with the values of now: no connection is cut for it. */
static void tell_again(struct op *op, const char *sandbox)
{
    struct network *w = op->node->network;
    struct attach *a = attach_new(w, sandbox);
    auto_free uint8_t *bytes = mem_alloc(NETWORK_FILE_MAX);
    struct egress_policy p;
    struct err e;

    a->op = op;
    a->done = put_one;
    if (network_load(w, sandbox, bytes, &p, &e) == 0) {
        p.keep = true;
        if (network_tell(w, EGRESS_POLICY, &p, NULL, 0, CHANGE_MS, on_changed, a, &e) == 0)
            return;
    }
    attach_done(a, NULL, &e);
}

void op_put_secrets(struct op *op)
{
    Quicksand__Node__PutSecretsRequest *rq = (Quicksand__Node__PutSecretsRequest *)op->rq;
    struct network *w = op->node->network;
    struct putting *p = op_state(op, sizeof *p);
    struct map_iter it = MAP_ITER;
    char (*ids)[ID_SIZE] = mem_array(w->notes.count + 1, sizeof *ids);
    const char *sandbox;
    void *note;
    size_t n = 0;

    while (map_next(&w->notes, &it, &sandbox, &note))
        if (names_any(note, rq))
            (void)snprintf(ids[n++], ID_SIZE, "%s", sandbox);
    router_secrets_put(op->node->router->secrets, rq);
    p->pending = n + 1;
    for (size_t i = 0; i < n; i++)
        tell_again(op, ids[i]);
    put_one(op, NULL);
    free(ids);
}
