/*
 * init_json_fuzz.c - the JSON parser and base64 of the file helper
 *
 * Values must lie within the text and nest properly, and what base64 decodes must encode to the same text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/mem.h"
#include "init/fs/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The number of nodes of the value, counted by walking it. */
static uint32_t check(const struct json *v, const char *text, size_t size)
{
    uint32_t n = 1;

    if (v->type == JSON_STRING || v->type == JSON_NUMBER) {
        if (v->text < text || v->text + v->len > text + size)
            abort();
        int64_t number;
        (void)json_int(v, &number);
    }
    const struct json *child = json_first(v);
    uint32_t children = child == NULL ? 0 : v->type == JSON_OBJECT ? v->count * 2 : v->count;
    for (uint32_t i = 0; i < children; i++, child = json_after(child))
        n += check(child, text, size);
    if (n != v->extent)
        abort();
    return n;
}

static void try_base64(const uint8_t *data, size_t size)
{
    uint8_t *bytes = mem_alloc(size + 1);
    char *text = mem_alloc(size + 8);
    size_t n;

    if (base64_decode((const char *)data, size, bytes, &n)) {
        base64_encode(bytes, n, text);
        if (4 * ((n + 2) / 3) != size || memcmp(text, data, size) != 0)
            abort();
    }
    free(bytes);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 64 * 1024)
        return 0;
    char *text = mem_alloc(size + 1);
    struct json *nodes = mem_alloc((size / 2 + 2) * sizeof *nodes);

    if (size > 0)
        memcpy(text, data, size);
    int n = json_parse(text, size, nodes, size / 2 + 2);
    if (n > 0 && check(nodes, text, size) != (uint32_t)n)
        abort();
    if (n > 0)
        (void)json_get(nodes, "path");
    free(nodes);
    free(text);
    try_base64(data, size);
    return 0;
}
