/*
 * exec_spec.c - codec of the block that says what to run
 *
 * Encoded by the node, decoded by init. The decoder runs on bytes that came from a client by way of
 * the node and the monitor, so every count and length is checked against its limit.
 */
#include "ipc/exec_spec.h"

#include <errno.h>
#include <string.h>

#include "ipc/wire.h"

#define USER_SIZE (2 * LIMIT_ID)    /* name:group */

int exec_spec_encode(const struct exec_spec *s, void *out, size_t size, size_t *ret_len)
{
    struct wire_writer w;

    wire_init(&w, out, size < LIMIT_CHANNEL_MESSAGE ? size : LIMIT_CHANNEL_MESSAGE);
    wire_put_u32(&w, s->argc);
    for (uint32_t i = 0; i < s->argc; i++)
        wire_put_str(&w, s->argv[i]);
    wire_put_u32(&w, s->envc);
    for (uint32_t i = 0; i < s->envc; i++)
        wire_put_str(&w, s->envp[i]);
    wire_put_str(&w, s->cwd);
    wire_put_str(&w, s->user);
    wire_put_u32(&w, s->umask);
    wire_put_i32(&w, s->nice);
    wire_put_u64(&w, s->nofile);
    wire_put_bool(&w, s->make_cwd);
    wire_put_bool(&w, s->helper);
    if (w.failed)
        return -ENOBUFS;
    *ret_len = w.len;
    return 0;
}

/*
 * A string of the block, terminated in place: it is moved onto its own length field, which makes
 * room for the NUL without touching what follows.
 */
static const char *get_in_place(struct wire_reader *r, uint8_t *block, size_t max, size_t *ret_len)
{
    size_t start = r->at;
    size_t n;
    const void *p = wire_get_bytes(r, max, &n);

    *ret_len = n;
    if (p == NULL || memchr(p, '\0', n) != NULL) {
        wire_fail(r);
        return "";
    }
    memmove(block + start, p, n);
    block[start + n] = '\0';
    return (const char *)block + start;
}

/* `count` strings of together at most `max` bytes with their NULs. */
static int get_strings(struct wire_reader *r, uint8_t *block, uint32_t count, size_t max,
                       const char **out)
{
    for (uint32_t i = 0; i < count && !r->failed; i++) {
        size_t n;
        out[i] = get_in_place(r, block, LIMIT_CHANNEL_MESSAGE, &n);
        if (n + 1 > max)
            return -E2BIG;
        max -= n + 1;
    }
    out[count] = NULL;
    return 0;
}

static bool is_variable(const char *s)
{
    const char *eq = strchr(s, '=');

    return eq != NULL && eq != s;
}

int exec_spec_decode(struct exec_spec *ret, void *block, size_t len, const char **arrays, size_t narrays)
{
    struct exec_spec s = {0};
    struct wire_reader r;
    size_t n;

    wire_read(&r, block, len);
    s.argc = wire_get_u32(&r);
    if (r.failed || s.argc == 0)
        return -EBADMSG;
    if (s.argc > LIMIT_ARGC || s.argc + 1 > narrays)
        return -E2BIG;
    s.argv = arrays;
    if (get_strings(&r, block, s.argc, LIMIT_ARGV_BYTES, s.argv) < 0)
        return -E2BIG;

    s.envc = wire_get_u32(&r);
    if (r.failed)
        return -EBADMSG;
    if (s.envc > LIMIT_ENVC || s.envc + 1 > narrays - (s.argc + 1))
        return -E2BIG;
    s.envp = arrays + s.argc + 1;
    if (get_strings(&r, block, s.envc, LIMIT_ENV_BYTES, s.envp) < 0)
        return -E2BIG;

    s.cwd = get_in_place(&r, block, LIMIT_PATH - 1, &n);
    s.user = get_in_place(&r, block, USER_SIZE - 1, &n);
    s.umask = wire_get_u32(&r);
    s.nice = wire_get_i32(&r);
    s.nofile = wire_get_u64(&r);
    s.make_cwd = wire_get_bool(&r);
    s.helper = wire_get_bool(&r);
    if (!wire_end(&r) || s.umask > 0777 || s.nice < 0 || s.nice > 19)
        return -EBADMSG;
    for (uint32_t i = 0; i < s.envc; i++)
        if (!is_variable(s.envp[i]))
            return -EBADMSG;
    *ret = s;
    return 0;
}

void exec_spec_summary(const void *block, size_t len, char *out, size_t size)
{
    struct wire_reader r;
    size_t at = 0;

    wire_read(&r, block, len);
    uint32_t argc = wire_get_u32(&r);
    for (uint32_t i = 0; i < argc && !r.failed && at + 1 < size; i++) {
        size_t n;
        const char *p = wire_get_bytes(&r, LIMIT_CHANNEL_MESSAGE, &n);
        if (p == NULL)
            break;
        if (i > 0)
            out[at++] = ' ';
        if (n > size - 1 - at)
            n = size - 1 - at;
        for (size_t k = 0; k < n; k++)
            out[at++] = p[k] == '\0' ? ' ' : p[k];
    }
    out[at] = '\0';
}
