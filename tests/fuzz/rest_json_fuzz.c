/*
 * rest_json_fuzz.c - a peer's bytes as the JSON body, the query and the path of every REST operation
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/rest/rest.h"
#include "base/mem.h"
#include "json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const struct op *op, const char *text)
{
    struct err e = {0};
    auto_free char *copy = mem_strdup(text);
    struct query_param *q = NULL;
    size_t n = 0;

    if (query_split(copy, &q, &n, &e) == 0)
        (void)check_query(op, q, n, &e);
    free(q);
    (void)check_param(op, "id", 2, text, &e);
    (void)check_param(op, "exec_id", 7, text, &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_ready;

    if (!is_ready)
        js_init();
    is_ready = true;
    auto_free char *text = mem_strndup((const char *)data, size);
    for (size_t i = 0; rest_op(i) != NULL; i++) {
        struct err e = {0};
        json_t *body = check_json(rest_op(i), data, size, &e);
        if (body == NULL && e.code == ERR_OK)
            abort();                    /* every refusal has a reason */
        json_decref(body);
        check_text(rest_op(i), text);
    }
    struct route_match m;
    route_find("GET", text, &m);
    return 0;
}
