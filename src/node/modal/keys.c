/*
 * keys.c - the keys that router tokens are checked with
 *
 * The file is four bytes "QSK1" and a SetKeysRequest of node.proto.
 */
#include "node/modal/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "net/pubkey.h"
#include "node/modal/jwt.h"
#include "sys/fd.h"

#define FILE_NAME ".router-keys"
#define MAGIC "QSK1"
#define MAGIC_SIZE 4
#define FILE_MAX (64 * 1024)
#define KEYS_MAX 16
#define GRANTS_MAX 4096         /* remembered tokens */
#define NBF_SLACK_S 5           /* control's clock and ours, when they are two machines' */

struct key {
    char kid[JWT_KID];
    struct net_pubkey *key;     /* owned */
    int64_t not_after_ms;       /* 0 = no end */
};

/* A token that passed. */
struct grant {
    char sandbox[ID_SIZE];
    int64_t until_ms;
};

struct router_keys {
    int fd;                     /* borrowed */
    struct key keys[KEYS_MAX];
    size_t n;
    struct map grants;          /* token -> struct grant, owned */
};

static void forget_grants(struct router_keys *k)
{
    struct map_iter it = MAP_ITER;
    void *g;

    while (map_next(&k->grants, &it, NULL, &g))
        free(g);
    map_done(&k->grants);
    map_init(&k->grants);
}

static void drop_keys(struct key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        net_pubkey_free(keys[i].key);
}

static int load_key(const Quicksand__Node__Key *rq, struct key *ret, struct err *e)
{
    if (rq->kid == NULL || rq->kid[0] == '\0' || strlen(rq->kid) >= sizeof ret->kid)
        return err_param(e, ERR_INVALID, "kid", "a key has no id, or one over %d bytes", JWT_KID - 1);
    ret->key = net_pubkey_load(rq->pem != NULL ? rq->pem : "", e);
    if (ret->key == NULL)
        return err_wrap(e, "key %.63s", rq->kid);
    (void)snprintf(ret->kid, sizeof ret->kid, "%s", rq->kid);
    ret->not_after_ms = rq->not_after_ms;
    return 0;
}

static int use(struct router_keys *k, const Quicksand__Node__SetKeysRequest *rq, struct err *e)
{
    struct key keys[KEYS_MAX];
    size_t n = 0;

    if (rq->n_keys > KEYS_MAX)
        return err_param(e, ERR_TOO_LARGE, "keys", "more than %d keys", KEYS_MAX);
    for (; n < rq->n_keys; n++)
        if (load_key(rq->keys[n], &keys[n], e) < 0) {
            drop_keys(keys, n);
            return -1;
        }
    drop_keys(k->keys, k->n);
    if (n > 0)
        memcpy(k->keys, keys, n * sizeof *keys);
    k->n = n;
    forget_grants(k);
    return 0;
}

static void load(struct router_keys *k)
{
    auto_free uint8_t *bytes = mem_alloc(FILE_MAX);
    auto_close int fd = openat(k->fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct err e;

    if (fd < 0 && errno == ENOENT)
        return;
    ssize_t n = fd < 0 ? -errno : fd_read_all(fd, bytes, FILE_MAX);
    Quicksand__Node__SetKeysRequest *rq = NULL;
    if (n >= MAGIC_SIZE && memcmp(bytes, MAGIC, MAGIC_SIZE) == 0)
        rq = quicksand__node__set_keys_request__unpack(NULL, (size_t)n - MAGIC_SIZE,
                                                       bytes + MAGIC_SIZE);
    if (rq == NULL)
        log_error("router-keys-unreadable", "error=%s", n < 0 ? strerror((int)-n) : "malformed");
    else if (use(k, rq, &e) < 0)
        log_error("router-keys-unreadable", "error=\"%s\"", e.message);
    quicksand__node__set_keys_request__free_unpacked(rq, NULL);
}

struct router_keys *router_keys_new(int state_fd)
{
    struct router_keys *k = mem_zalloc(sizeof *k);

    k->fd = state_fd;
    map_init(&k->grants);
    load(k);
    return k;
}

void router_keys_free(struct router_keys *k)
{
    forget_grants(k);
    map_done(&k->grants);
    drop_keys(k->keys, k->n);
    free(k);
}

int router_keys_set(struct router_keys *k, const Quicksand__Node__SetKeysRequest *rq, struct err *e)
{
    size_t n = quicksand__node__set_keys_request__get_packed_size(rq) + MAGIC_SIZE;

    if (n > FILE_MAX)
        return err_param(e, ERR_TOO_LARGE, "keys", "the keys are over %d bytes", FILE_MAX);
    if (use(k, rq, e) < 0)
        return -1;
    auto_free uint8_t *bytes = mem_alloc(n);
    memcpy(bytes, MAGIC, MAGIC_SIZE);
    (void)quicksand__node__set_keys_request__pack(rq, bytes + MAGIC_SIZE);
    int r = fd_replace_file(k->fd, FILE_NAME, bytes, n, 0600, true);
    return r < 0 ? err_sys(e, -r, "keep the router keys") : 0;
}

/* --- tokens ---------------------------------------------------------------------------------- */

static const struct key *find(const struct router_keys *k, const char *kid)
{
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(k->keys[i].kid, kid) == 0)
            return &k->keys[i];
    return NULL;
}

static int verify(const struct router_keys *k, const char *token, size_t len, struct grant *ret,
                  struct err *e)
{
    int64_t now_ms = clock_wall_ms();
    struct jwt t;

    if (jwt_decode(token, len, &t, e) < 0)
        return -1;
    const struct key *key = find(k, t.kid);
    if (key == NULL || (key->not_after_ms != 0 && now_ms >= key->not_after_ms))
        return err_set(e, ERR_UNAUTHENTICATED, "the token is signed with a key that is not in use");
    /* The key says how it is used, whatever the token would like. */
    if (strcmp(t.alg, net_pubkey_alg(key->key)) != 0 ||
        !net_pubkey_verify(key->key, token, t.signed_len, t.signature))
        return err_set(e, ERR_UNAUTHENTICATED, "the token's signature is wrong");
    if (t.nbf_s > now_ms / 1000 + NBF_SLACK_S)
        return err_set(e, ERR_UNAUTHENTICATED, "the token is not valid yet");
    int64_t until_ms = t.exp_s < INT64_MAX / 1000 ? t.exp_s * 1000 : INT64_MAX;
    if (key->not_after_ms != 0 && key->not_after_ms < until_ms)
        until_ms = key->not_after_ms;
    memcpy(ret->sandbox, t.sandbox, sizeof ret->sandbox);
    ret->until_ms = until_ms;
    return 0;
}

static int check_time(const struct grant *g, struct err *e)
{
    if (clock_wall_ms() >= g->until_ms)
        return err_set(e, ERR_UNAUTHENTICATED, "the token has expired");
    return 0;
}

int router_keys_check(struct router_keys *k, const char *authorization, char ret_sandbox[ID_SIZE],
                      struct err *e)
{
    static const char scheme[] = "Bearer ";
    struct grant g;

    if (authorization == NULL || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return err_set(e, ERR_UNAUTHENTICATED, "no token: 'authorization: Bearer <token>' is needed");
    const char *token = authorization + sizeof scheme - 1;
    size_t len = strlen(token);
    const struct grant *known = len <= JWT_MAX ? map_get(&k->grants, token) : NULL;
    if (known != NULL) {
        g = *known;
        if (check_time(&g, e) < 0) {
            free(map_del(&k->grants, token));
            return -1;
        }
    } else {
        if (verify(k, token, len, &g, e) < 0 || check_time(&g, e) < 0)
            return -1;
        if (k->grants.count >= GRANTS_MAX)
            forget_grants(k);
        (void)map_put(&k->grants, token, mem_dup(&g, sizeof g));
    }
    memcpy(ret_sandbox, g.sandbox, sizeof g.sandbox);
    return 0;
}
