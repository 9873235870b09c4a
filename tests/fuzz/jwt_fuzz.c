/*
 * jwt_fuzz.c - a stranger's bytes as a router token
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "json/json.h"
#include "node/modal/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_ready;
    struct err e = {0};
    struct jwt t;

    if (!is_ready)
        js_init();
    is_ready = true;
    auto_free char *text = mem_dup(data, size);         /* exactly as large, so that a byte too far is seen */
    if (jwt_decode(text, size, &t, &e) < 0) {
        if (e.code != ERR_UNAUTHENTICATED || e.message[0] == '\0')
            abort();                    /* every refusal has a reason */
        return 0;
    }
    if (t.signed_len >= size || !id_is(t.sandbox, "sb-") || t.exp_s <= 0 || t.nbf_s < 0 || t.kid[0] == '\0' ||
        strlen(t.alg) >= sizeof t.alg)
        abort();
    return 0;
}
