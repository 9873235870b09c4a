/*
 * secrets.c - values of named secrets, in memory alone
 */
#include "node/modal/secrets.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"

struct router_secrets {
    struct map by_id;           /* id -> Secret, owned; a deleted one keeps its version */
    bool is_told;
};

/* Its values do not stay behind in freed memory. */
static void secret_free(Quicksand__Node__Secret *s)
{
    for (size_t i = 0; s != NULL && i < s->n_env; i++)
        if (s->env[i].data != NULL)
            explicit_bzero(s->env[i].data, s->env[i].len);
    quicksand__node__secret__free_unpacked(s, NULL);
}

static void forget_all(struct router_secrets *s)
{
    struct map_iter it = MAP_ITER;
    void *v;

    while (map_next(&s->by_id, &it, NULL, &v))
        secret_free(v);
    map_done(&s->by_id);
    map_init(&s->by_id);
}

struct router_secrets *router_secrets_new(void)
{
    struct router_secrets *s = mem_zalloc(sizeof *s);

    map_init(&s->by_id);
    return s;
}

void router_secrets_free(struct router_secrets *s)
{
    forget_all(s);
    map_done(&s->by_id);
    free(s);
}

static void put(struct router_secrets *s, Quicksand__Node__Secret *secret)
{
    const char *id = secret->secret_id;
    const Quicksand__Node__Secret *old = id != NULL ? map_get(&s->by_id, id) : NULL;

    if (id == NULL || (old != NULL && old->version > secret->version))
        secret_free(secret);
    else
        secret_free(map_put(&s->by_id, id, secret));
}

void router_secrets_put(struct router_secrets *s, Quicksand__Node__PutSecretsRequest *rq)
{
    if (rq->replace_all)
        forget_all(s);
    s->is_told = s->is_told || rq->replace_all;
    for (size_t i = 0; i < rq->n_secrets; i++)
        put(s, rq->secrets[i]);
    rq->n_secrets = 0;          /* they are ours now */
}

const Quicksand__Node__Secret *router_secrets_get(const struct router_secrets *s, const char *id)
{
    const Quicksand__Node__Secret *secret = map_get(&s->by_id, id);

    return secret != NULL && !secret->deleted ? secret : NULL;
}

bool router_secrets_are_told(const struct router_secrets *s)
{
    return s->is_told;
}
