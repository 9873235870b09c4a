/*
 * batch.c - Batch: small operations in order, in one process
 *
 * Operations are {"op": name, ...arguments}. They come in the arguments or, where those would be too long
 * for a command line, on stdin as one JSON array. The result is an array of {"ok": ...} and
 * {"error": ...}; an error stops nothing, but with "strict": then it is the error of all.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "init/fs/op.h"
#include "sys/fd.h"

#define OPS_MAX 1000
#define INPUT_MAX (32 * 1024 * 1024)

static const struct json *read_ops(struct op *o, struct fs_error *e)
{
    /* Only what arrives takes memory. */
    char *text = mmap(NULL, INPUT_MAX + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (text == MAP_FAILED) {
        (void)fs_fail(e, errno);
        return NULL;
    }
    ssize_t n = fd_read_all(0, text, INPUT_MAX);
    if (n < 0) {
        (void)fs_fail(e, (int)-n);
        return NULL;
    }
    /* An operation needs more bytes than values, and few are longer than their content. */
    size_t max = (size_t)OPS_MAX * 64;
    struct json *nodes = arena_alloc(o->arena, max * sizeof *nodes);
    int r = json_parse(text, (size_t)n, nodes, max);
    if (r < 0) {
        (void)fs_fail_kind(e, "Invalid", r == -E2BIG ? "too many values" : "stdin is not JSON");
        return NULL;
    }
    return nodes;
}

static int run(struct op *o, const struct json *args, struct fs_error *ret_e)
{
    struct arena arena = {0};
    struct op one = {.args = args, .out = o->out, .arena = &arena, .batch = true};
    const struct json *name = json_get(args, "op");
    op_fn *fn = name != NULL && name->type == JSON_STRING ? op_find(name->text, true) : NULL;
    struct fs_error e;
    size_t before = o->out->len;
    int r = -1;

    out_text(o->out, "{\"ok\":");
    size_t result = o->out->len;
    if (fn == NULL)
        (void)fs_fail_kind(&e, "NotSupported", "unknown operation");
    else
        r = fn(&one, &e);
    if (r == 0 && o->out->len == result)
        out_text(o->out, "null");
    if (r < 0 && o->out->error == 0) {
        o->out->len = before;
        out_text(o->out, "{\"error\":");
        fs_error_print(o->out, &e);
    }
    out_text(o->out, "}");
    arena_reset(&arena, (struct arena_mark){0});
    if (r < 0)
        *ret_e = e;
    return r;
}

int op_batch(struct op *o, struct fs_error *e)
{
    const struct json *ops = json_get(o->args, "ops");
    struct out *real = o->out, memory;
    bool strict;
    int r = 0;

    if (arg_bool(o, "strict", false, &strict, e) < 0)
        return -1;
    if (ops == NULL || ops->type == JSON_NULL)
        ops = read_ops(o, e);
    if (ops == NULL)
        return -1;
    if (ops->type != JSON_ARRAY)
        return fs_fail_kind(e, "Invalid", "ops must be an array");
    if (ops->count > OPS_MAX)
        return fs_fail_kind(e, "Invalid", "too many operations");
    /* In memory, so that what a failing operation had printed can be taken back. */
    out_init(&memory, -1);
    o->out = &memory;
    out_text(&memory, "[");
    const struct json *v = json_first(ops);
    for (uint32_t i = 0; i < ops->count && (r == 0 || !strict); i++, v = json_after(v)) {
        if (i > 0)
            out_text(&memory, ",");
        r = run(o, v, e);
    }
    out_text(&memory, "]");
    o->out = real;
    if (strict && r < 0) {
        out_free(&memory);
        return -1;
    }
    if (memory.error != 0)
        return fs_fail(e, memory.error);
    out_bytes(real, memory.data, memory.len);
    out_free(&memory);
    return 0;
}
