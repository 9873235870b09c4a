/*
 * policy_secrets.c - which secrets the rules of a policy name, and whether they have what the rules want of them
 *
 * Names are those of the default environment; an id names any secret. The node knows the values by id, so a policy keeps its
 * meaning when another secret gets the name.
 */
#include "core/policy_secrets.h"

#include <stdio.h>
#include <string.h>

#include "core/internal.h"
#include "json/json.h"
#include "store/objects.h"

#define PARAM "network"

struct wanted {
    const json_t *keys;         /* of the secret; NULL: there is none */
    const struct policy_inject *inject;
    size_t rule;                /* from 1 */
    struct err *e;
    bool failed;
};

static bool has_key(const json_t *keys, const char *key, size_t n)
{
    size_t i;
    json_t *v;

    json_array_foreach(keys, i, v)
        if (json_string_length(v) == n && memcmp(json_string_value(v), key, n) == 0)
            return true;
    return false;
}

static void check_key(void *ctx, const char *key, size_t n)
{
    struct wanted *w = ctx;

    if (w->failed || (w->keys != NULL && has_key(w->keys, key, n)))
        return;
    w->failed = true;
    if (w->keys == NULL)
        err_param(w->e, ERR_INVALID, PARAM, "rule %zu: $%.*s is a value of a secret, but the inject names none", w->rule,
                  (int)(n < 60 ? n : 60), key);
    else
        err_param(w->e, ERR_INVALID, PARAM, "rule %zu: the secret '%.64s' has no key '%.*s'", w->rule, w->inject->secret,
                  (int)(n < 60 ? n : 60), key);
}

static int find(struct core *c, size_t rule, struct policy_inject *j, struct err *e)
{
    struct wanted w = {.inject = j, .rule = rule, .e = e};
    auto_secret_row row = {0};
    auto_json *keys = NULL;
    struct err local;

    j->secret_id[0] = '\0';
    if (j->secret[0] != '\0') {
        int r = id_is(j->secret, "st-") ? store_secret_get(c->store, j->secret, &row, &local)
                                        : store_secret_by_name(c->store, "", j->secret, &row, &local);
        if (r < 0 && local.code == ERR_NOT_FOUND)
            return err_param(e, ERR_INVALID, PARAM, "rule %zu: there is no secret '%.64s'", rule, j->secret);
        if (r < 0) {
            *e = local;
            return -1;
        }
        memcpy(j->secret_id, row.id, sizeof j->secret_id);
        w.keys = keys = json_loads(row.keys, 0, NULL);
    }
    policy_inject_keys(j, check_key, &w);
    return w.failed ? -1 : 0;
}

int policy_find_secrets(struct core *c, struct policy *p, struct err *e)
{
    for (uint32_t i = 0; i < p->nrules; i++)
        for (uint32_t k = 0; k < p->rules[i].ninjects; k++)
            if (find(c, i + 1, &p->rules[i].injects[k], e) < 0)
                return -1;
    return 0;
}
