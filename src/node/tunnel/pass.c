/*
 * pass.c - connect tokens, see pass.h
 */
#include "node/tunnel/pass.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "json/json.h"
#include "sys/fd.h"

#define FILE_NAME ".connect-tokens"
#define FILE_MAX (32 * 1024 * 1024)

static void pass_free(struct pass *p)
{
    free(p->metadata);
    allow_done(&p->allow);
    free(p);
}

static void hash_token(const char *token, char out[SHA256_HEX_SIZE])
{
    uint8_t digest[SHA256_SIZE];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, token, strlen(token));
    sha256_end(&s, digest);
    sha256_hex(digest, out);
}

/* --- on disk --------------------------------------------------------------------------------- */

static json_t *to_json(const struct pass *p)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:s}", "id", p->id, "hash", p->hash, "sandbox", p->sandbox, "port",
                          (int)p->port, "until_ms", (json_int_t)p->until_ms, "uses_left", (json_int_t)p->uses_left, "metadata",
                          p->metadata);

    allow_to_json(&p->allow, o);
    return o;
}

static int save(struct node *n, struct err *e)
{
    auto_json *all = json_array();

    for (const struct pass *p = n->passes; p != NULL; p = p->next)
        json_array_append_new(all, to_json(p));
    auto_free char *text = js_text(all, false);
    int r = fd_replace_file(n->state_fd, FILE_NAME, text, strlen(text), 0600, false);
    return r < 0 ? err_sys(e, -r, "keep the connect tokens") : 0;
}

static void restore_one(struct node *n, const json_t *o)
{
    const char *id = json_string_value(json_object_get(o, "id")), *hash = json_string_value(json_object_get(o, "hash"));
    const char *sandbox = json_string_value(json_object_get(o, "sandbox"));
    const char *metadata = json_string_value(json_object_get(o, "metadata"));

    if (id == NULL || !id_is(id, "ct-") || hash == NULL || strlen(hash) != SHA256_HEX_SIZE - 1 || sandbox == NULL ||
        !id_is(sandbox, "sb-") || metadata == NULL)
        return;
    struct pass *p = mem_zalloc(sizeof *p);
    (void)snprintf(p->id, sizeof p->id, "%s", id);
    (void)snprintf(p->hash, sizeof p->hash, "%s", hash);
    (void)snprintf(p->sandbox, sizeof p->sandbox, "%s", sandbox);
    p->port = (uint16_t)json_integer_value(json_object_get(o, "port"));
    p->until_ms = json_integer_value(json_object_get(o, "until_ms"));
    p->uses_left = json_integer_value(json_object_get(o, "uses_left"));
    p->metadata = mem_strdup(metadata);
    allow_from_json(&p->allow, o);
    p->next = n->passes;
    n->passes = p;
}

void passes_new(struct node *n)
{
    auto_close int fd = openat(n->state_fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const json_t *o;
    size_t i;

    n->passes = NULL;
    if (fd < 0)
        return;                 /* there were none */
    auto_free char *text = mem_alloc(FILE_MAX);
    ssize_t len = fd_read_all(fd, text, FILE_MAX);
    auto_json *all = len >= 0 ? json_loadb(text, (size_t)len, 0, NULL) : NULL;
    if (!json_is_array(all))
        log_warn("connect-tokens", "cause=\"%s cannot be read: its tokens are lost\"", FILE_NAME);
    json_array_foreach(all, i, o)
        restore_one(n, o);
}

void passes_free(struct node *n)
{
    while (n->passes != NULL) {
        struct pass *p = n->passes;
        n->passes = p->next;
        pass_free(p);
    }
}

/* --- making, revoking, using ----------------------------------------------------------------- */

/* The value goes into a header as it is. */
static int check_metadata(const char *text, struct err *e)
{
    if (strlen(text) > LIMIT_PASS_METADATA)
        return err_param(e, ERR_TOO_LARGE, "metadata", "metadata has %zu bytes, at most %d are accepted", strlen(text),
                         LIMIT_PASS_METADATA);
    for (const char *p = text; *p != '\0'; p++)
        if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
            return err_param(e, ERR_INVALID, "metadata", "metadata has a control character, which no header can carry");
    return 0;
}

int pass_make(struct node *n, const Quicksand__Node__PassRequest *rq, char *ret_token, const struct pass **ret, struct err *e)
{
    static const char digits[] = "0123456789abcdef";
    const char *metadata = rq->metadata != NULL ? rq->metadata : "";
    uint8_t secret[24];
    size_t count = 0;

    if (rq->port < 1 || rq->port > 65535)
        return err_param(e, ERR_INVALID, "port", "port %u is not from 1 to 65535", rq->port);
    if (check_metadata(metadata, e) < 0)
        return -1;
    for (const struct pass *p = n->passes; p != NULL; p = p->next)
        count += strcmp(p->sandbox, rq->sandbox_id) == 0;
    if (count >= LIMIT_PASSES)
        return err_set(e, ERR_LIMIT, "the sandbox has %zu connect tokens, at most %d are kept", count, LIMIT_PASSES);
    struct pass *p = mem_zalloc(sizeof *p);
    p->metadata = mem_strdup(metadata);
    if (allow_read(&p->allow, rq->restricted, rq->allowed, rq->n_allowed, e) < 0) {
        pass_free(p);
        return -1;
    }
    random_bytes(secret, sizeof secret);
    memcpy(ret_token, PASS_PREFIX, strlen(PASS_PREFIX));
    char *at = ret_token + strlen(PASS_PREFIX);
    for (size_t i = 0; i < sizeof secret; i++) {
        *at++ = digits[secret[i] >> 4];
        *at++ = digits[secret[i] & 15];
    }
    *at = '\0';
    id_make(p->id, "ct-");
    hash_token(ret_token, p->hash);
    (void)snprintf(p->sandbox, sizeof p->sandbox, "%s", rq->sandbox_id);
    p->port = (uint16_t)rq->port;
    p->until_ms = rq->until_ms;
    p->uses_left = rq->has_uses && rq->uses != 0 ? (int64_t)rq->uses : -1;
    p->next = n->passes;
    n->passes = p;
    if (save(n, e) < 0) {
        n->passes = p->next;
        pass_free(p);
        return -1;
    }
    *ret = p;
    return 0;
}

size_t pass_revoke(struct node *n, const char *sandbox, const char *id)
{
    struct err e;
    size_t gone = 0;

    for (struct pass **at = &n->passes; *at != NULL;) {
        struct pass *p = *at;
        if (strcmp(p->sandbox, sandbox) != 0 || (id[0] != '\0' && strcmp(p->id, id) != 0)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        pass_free(p);
        gone++;
    }
    if (gone > 0 && save(n, &e) < 0)
        log_warn("connect-tokens", "cause=\"%s\"", e.message);
    return gone;
}

const struct pass *pass_next(const struct node *n, const char *sandbox, const struct pass *after)
{
    const struct pass *p = after != NULL ? after->next : n->passes;

    while (p != NULL && strcmp(p->sandbox, sandbox) != 0)
        p = p->next;
    return p;
}

struct pass *pass_find(struct node *n, const char *token, struct err *e)
{
    char hash[SHA256_HEX_SIZE];
    struct pass *p = n->passes;

    hash_token(token, hash);
    while (p != NULL && strcmp(p->hash, hash) != 0)
        p = p->next;
    if (p == NULL) {
        (void)err_set(e, ERR_UNAUTHENTICATED, "the connect token is none of this server's, or was revoked");
        return NULL;
    }
    if (p->until_ms != 0 && clock_wall_ms() >= p->until_ms) {
        (void)err_set(e, ERR_UNAUTHENTICATED, "the connect token has expired");
        return NULL;
    }
    if (p->uses_left == 0) {
        (void)err_set(e, ERR_UNAUTHENTICATED, "the connect token has been used as often as it may be");
        return NULL;
    }
    return p;
}

int pass_count(struct node *n, struct pass *p, struct err *e)
{
    if (p->uses_left <= 0)
        return 0;
    p->uses_left--;
    if (save(n, e) == 0)
        return 0;
    p->uses_left++;             /* a use that is not on disk could be made again */
    return -1;
}
