/*
 * access.c - what may leave the sandbox, changed by Modal's clients while it runs
 *
 * Two calls change two halves of the policy: what is allowed, and what is put into requests. Each leaves the other as it is.
 */
#include <string.h>

#include "base/mem.h"
#include "base/policy_replace.h"
#include "node/modal/router.h"
#include "node/network.h"

#define RQ(op, type) ((const Modal__TaskCommandRouter__##type *)(op)->rq)

/* What these clients go by: it can never be changed. */
static const struct err *final(const struct err *e, struct err *room)
{
    if (e == NULL || e->code != ERR_CONFLICT)
        return e;
    err_set(room, ERR_PRECONDITION, "%s", e->message);
    return room;
}

static int check_routes(const struct policy *p, struct err *e)
{
    for (uint32_t i = 0; i < p->nrules; i++)
        if (strncmp(p->rules[i].name, ROUTE_RULE, strlen(ROUTE_RULE)) == 0)
            return err_set(e, ERR_PRECONDITION, "the sandbox was created with outbound_policy, whose routes cannot be changed");
    return 0;
}

/* --- what is allowed ------------------------------------------------------------------------- */

static int read_access(const Modal__Client__NetworkAccess *n, struct policy *p, struct err *e)
{
    if (n->network_access_type == MODAL__CLIENT__NETWORK_ACCESS__NETWORK_ACCESS_TYPE__OPEN) {
        policy_open(p);
        return 0;
    }
    if (n->network_access_type == MODAL__CLIENT__NETWORK_ACCESS__NETWORK_ACCESS_TYPE__BLOCKED)
        return 0;
    if (n->network_access_type != MODAL__CLIENT__NETWORK_ACCESS__NETWORK_ACCESS_TYPE__ALLOWLIST)
        return err_param(e, ERR_INVALID, "network_access", "the type of network access is not known");
    return policy_allow_lists(p, n->allowed_cidrs, n->n_allowed_cidrs, n->allowed_domains, n->n_allowed_domains, e);
}

static int merge_access(struct op *op, const struct policy *now, struct policy *ret, struct err *e)
{
    struct policy rules, old, access;

    policy_init(&rules);
    policy_init(&old);
    policy_init(&access);
    int r = check_routes(now, e);
    if (r == 0)
        r = read_access(RQ(op, TaskSetNetworkAccessRequest)->network_access, &access, e);
    if (r == 0) {
        replace_split(now, &rules, &old);
        /* Of these the call does not speak. */
        access.bandwidth = old.bandwidth;
        access.flags |= old.flags & POLICY_REFUSE_ECH;
        replace_put(&rules, &access, ret);
    }
    policy_done(&rules);
    policy_done(&old);
    policy_done(&access);
    return r;
}

static void access_done(struct op *op, const struct err *e)
{
    Modal__TaskCommandRouter__TaskSetNetworkAccessResponse m =
        MODAL__TASK_COMMAND_ROUTER__TASK_SET_NETWORK_ACCESS_RESPONSE__INIT;
    struct err room;

    if (e != NULL)
        op_fail(op, final(e, &room));
    else
        op_reply(op, &m.base);
}

void router_set_network_access(struct op *op)
{
    char sandbox[ID_SIZE];
    struct err e;

    int r = router_sandbox(op, RQ(op, TaskSetNetworkAccessRequest)->task_id, NULL, sandbox, &e);
    if (r == 0 && RQ(op, TaskSetNetworkAccessRequest)->network_access == NULL)
        r = err_param(&e, ERR_INVALID, "network_access", "network_access is missing");
    if (r < 0)
        op_fail(op, &e);
    else
        network_change(op, sandbox, merge_access, access_done);
}

/* --- what is put into requests --------------------------------------------------------------- */

static enum replace_key has_key(void *ctx, const char *secret_id, const char *key, size_t n)
{
    const struct router_secrets *secrets = ctx;
    const Quicksand__Node__Secret *s = router_secrets_get(secrets, secret_id);

    for (size_t i = 0; s != NULL && i < s->n_env; i++)
        if (s->env[i].len > n && memcmp(s->env[i].data, key, n) == 0 && s->env[i].data[n] == '=')
            return REPLACE_KEY_KNOWN;
    return s != NULL ? REPLACE_KEY_MISSING : REPLACE_NO_SECRET;
}

static int read_replacements(struct op *op, struct policy *ret, struct err *e)
{
    const Modal__Client__ExperimentalOutboundPolicy *m =
        RQ(op, TaskSetExperimentalOutboundPolicyRequest)->experimental_outbound_policy;
    struct replace_list list = {.n = 0};

    if (!router_secrets_are_told(op->node->router->secrets))
        return err_set(e, ERR_UNAVAILABLE, "the node has begun and is not told of secrets yet");
    for (size_t i = 0; i < m->n_header_replacements; i++) {
        const Modal__Client__ExperimentalOutboundPolicy__HeaderReplacement *h = m->header_replacements[i];
        if (h->n_headers == 0)
            return err_param(e, ERR_INVALID, "experimental_outbound_policy", "headers must contain at least one header");
        for (size_t k = 0; k < h->n_headers; k++)
            if (replace_add(&list, h->domain != NULL ? h->domain : "", h->secret_id != NULL ? h->secret_id : "",
                            h->headers[k]->key != NULL ? h->headers[k]->key : "",
                            h->headers[k]->value != NULL ? h->headers[k]->value : "", e) < 0)
                return -1;
    }
    if (replace_rules(&list, has_key, op->node->router->secrets, ret, e) == 0)
        return 0;
    /* "Not found" is the sandbox to these clients. */
    e->code = e->code == ERR_NOT_FOUND ? ERR_PRECONDITION : e->code;
    return -1;
}

static int merge_replacements(struct op *op, const struct policy *now, struct policy *ret, struct err *e)
{
    struct policy rules, old, access;

    policy_init(&rules);
    policy_init(&old);
    policy_init(&access);
    int r = check_routes(now, e);
    if (r == 0)
        r = read_replacements(op, &rules, e);
    if (r == 0) {
        replace_split(now, &old, &access);
        replace_put(&rules, &access, ret);
    }
    policy_done(&rules);
    policy_done(&old);
    policy_done(&access);
    return r;
}

static void outbound_done(struct op *op, const struct err *e)
{
    Modal__TaskCommandRouter__TaskSetExperimentalOutboundPolicyResponse m =
        MODAL__TASK_COMMAND_ROUTER__TASK_SET_EXPERIMENTAL_OUTBOUND_POLICY_RESPONSE__INIT;
    struct err room;

    if (e != NULL)
        op_fail(op, final(e, &room));
    else
        op_reply(op, &m.base);
}

void router_set_outbound_policy(struct op *op)
{
    char sandbox[ID_SIZE];
    struct err e;

    int r = router_sandbox(op, RQ(op, TaskSetExperimentalOutboundPolicyRequest)->task_id, NULL, sandbox, &e);
    if (r == 0 && RQ(op, TaskSetExperimentalOutboundPolicyRequest)->experimental_outbound_policy == NULL)
        r = err_param(&e, ERR_INVALID, "experimental_outbound_policy", "experimental_outbound_policy is missing");
    if (r < 0)
        op_fail(op, &e);
    else
        network_change(op, sandbox, merge_replacements, outbound_done);
}
