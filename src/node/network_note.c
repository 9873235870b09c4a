/*
 * network_note.c - what a sandbox's policy means for others than egress
 */
#include "node/network_note.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ipc/egress_proto.h"

static void add_env(struct network_note *n, const struct policy_inject *j)
{
    n->env = mem_realloc(n->env, (n->nenv + 1) * sizeof *n->env);
    n->env[n->nenv++] = mem_printf("%s=%s", j->name, j->value);
}

struct network_note *network_note_new(const struct policy *p)
{
    struct network_note *n = mem_zalloc(sizeof *n);

    n->opens_tls = policy_opens_tls(p);
    map_init(&n->secrets);
    for (uint32_t i = 0; i < p->nrules; i++)
        for (uint32_t k = 0; k < p->rules[i].ninjects; k++) {
            const struct policy_inject *j = &p->rules[i].injects[k];
            if (j->secret_id[0] != '\0')
                (void)map_put(&n->secrets, j->secret_id, n);
            if (j->kind == POLICY_PLACEHOLDER)
                add_env(n, j);
        }
    return n;
}

void network_note_free(struct network_note *n)
{
    if (n == NULL)
        return;
    for (size_t i = 0; i < n->nenv; i++)
        free(n->env[i]);
    free(n->env);
    map_done(&n->secrets);
    free(n);
}

/* --- values ---------------------------------------------------------------------------------- */

struct gather {
    const struct router_secrets *known;
    const struct policy_inject *inject;
    struct map seen;            /* "id/key" */
    struct buf *out;
    bool is_full;
};

static const ProtobufCBinaryData *find(const Quicksand__Node__Secret *s, const char *key, size_t n)
{
    for (size_t i = 0; s != NULL && i < s->n_env; i++)
        if (s->env[i].len > n && memcmp(s->env[i].data, key, n) == 0 && s->env[i].data[n] == '=')
            return &s->env[i];
    return NULL;
}

static void add_key(void *ctx, const char *key, size_t n)
{
    struct gather *g = ctx;
    struct egress_secret s = {{0}};
    const ProtobufCBinaryData *v = find(router_secrets_get(g->known, g->inject->secret_id), key, n);
    auto_free char *name = mem_printf("%s/%.*s", g->inject->secret_id, (int)n, key);

    if (v == NULL || n >= sizeof s.key || map_put(&g->seen, name, g) != NULL)
        return;
    memcpy(s.id, g->inject->secret_id, sizeof s.id);
    memcpy(s.key, key, n);
    s.value = (const char *)v->data + n + 1;
    s.value_len = v->len - n - 1;
    size_t room = sizeof s + s.value_len + 16;
    void *to = buf_reserve(g->out, room);
    size_t used = to != NULL ? egress_secret_encode(&s, to, room) : 0;
    g->is_full = g->is_full || used == 0;
    buf_grew(g->out, used);
}

int network_secrets(const struct policy *p, const struct router_secrets *known, struct buf *out, struct err *e)
{
    struct gather g = {.known = known, .out = out};

    map_init(&g.seen);
    for (uint32_t i = 0; i < p->nrules; i++)
        for (uint32_t k = 0; k < p->rules[i].ninjects; k++) {
            g.inject = &p->rules[i].injects[k];
            if (g.inject->secret_id[0] == '\0')
                continue;
            policy_inject_keys(g.inject, add_key, &g);
            if (g.inject->kind == POLICY_SIGV4)
                add_key(&g, "AWS_SESSION_TOKEN", strlen("AWS_SESSION_TOKEN"));
        }
    map_done(&g.seen);
    if (g.is_full || out->len > EGRESS_SECRETS_BYTES)
        return err_param(e, ERR_TOO_LARGE, "network", "the values of secrets that the policy names are more than %d bytes",
                         EGRESS_SECRETS_BYTES);
    return 0;
}
