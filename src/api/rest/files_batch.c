/*
 * files_batch.c - POST .../files/batch: many small operations in one helper
 *
 * The list goes to the helper on stdin, because it may be larger than an argument can be. The helper checks each
 * operation for itself, so one that is malformed fails alone; its words become the API's here.
 */
#include <string.h>

#include "api/rest/fs_ask.h"
#include "api/rest/fs_errors.h"
#include "api/rest/handlers.h"
#include "api/rest/text.h"
#include "base/limits.h"
#include "base/mem.h"
#include "json/json.h"

#define BATCH_OPS 1000

static const char *const names[] = {"read", "write", "stat", "list", "mkdir", "remove", "move"};

static const char *op_name(const json_t *op)
{
    const char *name = json_string_value(json_object_get(op, "op"));

    for (size_t i = 0; name != NULL && i < array_len(names); i++)
        if (strcmp(name, names[i]) == 0)
            return names[i];
    return NULL;
}

static json_t *error_item(const json_t *error, const json_t *op)
{
    const char *path = json_string_value(json_object_get(op, "path"));
    struct err e;

    (void)fs_error_from_json(error, path, &e);
    return json_pack("{s:{s:s, s:o}}", "error", "code", err_row(e.code)->name, "message", js_string_lossy(e.message));
}

/* A read's bytes as text where they are text. */
static json_t *content(const json_t *ok)
{
    const json_t *b64 = json_object_get(ok, "b64");
    json_t *o = json_object();
    size_t n = 0;
    auto_free uint8_t *bytes = text_unbase64(json_string_value(b64), json_string_length(b64), &n);

    json_object_set(o, "size", json_object_get(ok, "size"));
    if (bytes != NULL && text_is_utf8(bytes, n))
        json_object_set_new(o, "text", json_stringn_nocheck((const char *)bytes, n));
    else
        json_object_set(o, "b64", (json_t *)(uintptr_t)b64);
    return o;
}

static json_t *ok_item(const char *name, const json_t *ok)
{
    json_t *v;

    if (strcmp(name, "read") == 0 && json_is_object(ok))
        v = content(ok);
    else if (strcmp(name, "stat") == 0)
        v = fs_entry(ok);
    else if (strcmp(name, "list") == 0)
        v = fs_entries(ok, json_array_size(ok));
    else
        v = json_is_object(ok) ? json_incref((json_t *)(uintptr_t)ok) : json_object();
    return json_pack("{s:o}", "ok", v);
}

static void answer(struct call *c, const json_t *out)
{
    const json_t *ops = json_object_get(c->body, "ops"), *results = out;
    json_t *items = json_array();
    struct err e;

    if (json_array_size(results) != json_array_size(ops)) {
        json_decref(items);
        (void)err_set(&e, ERR_FS_IO, "the file helper answered %zu of %zu operations", json_array_size(results),
                      json_array_size(ops));
        call_fail(c, &e);
        return;
    }
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i), *result = json_array_get(results, i);
        const json_t *error = json_object_get(result, "error");
        json_array_append_new(items, error != NULL ? error_item(error, op)
                                                   : ok_item(op_name(op), json_object_get(result, "ok")));
    }
    call_reply(c, 200, json_pack("{s:o}", "items", items));
}

static int check(const json_t *ops, struct err *e)
{
    const json_t *op;
    size_t i;

    if (!json_is_array(ops))
        return err_param(e, ERR_INVALID, "ops", "ops must be an array of operations");
    if (json_array_size(ops) > BATCH_OPS)
        return err_param(e, ERR_TOO_LARGE, "ops", "a batch may have %d operations, not %zu", BATCH_OPS,
                         json_array_size(ops));
    json_array_foreach((json_t *)(uintptr_t)ops, i, op)
        if (op_name(op) == NULL)
            return err_param(e, ERR_INVALID, "ops",
                             "operation %zu: op must be read, write, stat, list, mkdir, remove or move", i);
    return 0;
}

void file_batch(struct call *c)
{
    const json_t *ops = json_object_get(c->body, "ops");
    struct err e;

    if (check(ops, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    auto_free char *text = js_text(ops, false);
    fs_ask(c, "Batch", json_object(), NULL, text, answer);
}
