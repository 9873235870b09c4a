/*
 * dockerfile_fuzz.c - texts of Dockerfiles: parsed, expanded, divided into words and pairs
 */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "core/dockerfile/dockerfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *lookup(void *ctx, const char *name, size_t n)
{
    return n > 0 && name[0] == 'N' ? NULL : n == 1 ? "a/b.c" : "";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct df_file f;
    struct err e = {0};

    js_init();
    if (size > 4096 || df_parse((const char *)data, size, &f, &e) < 0)
        return 0;
    const struct df_shell sh = {.escape = f.escape, .lookup = lookup};
    for (size_t i = 0; i < f.n; i++) {
        auto_free char *text = df_expand(&sh, f.list[i].text, &e);
        json_decref(df_words(&sh, f.list[i].text, &e));
        json_decref(df_pairs(&sh, f.list[i].text, &e));
        for (size_t k = 0; k < f.list[i].nheredocs; k++)
            if (f.list[i].heredocs[k].text == NULL || f.list[i].heredocs[k].name == NULL)
                __builtin_trap();
    }
    df_done(&f);
    return 0;
}
