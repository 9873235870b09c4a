/*
 * idempotency.c - keys of repeated requests, in the store
 */
#include "core/idempotency.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/internal.h"

#define KEEP_MS (24LL * 3600 * 1000)

int idem_begin(struct core *c, const char *token_id, const char *key,
               const uint8_t hash[IDEM_HASH_SIZE], const char *object, enum idem_result *ret,
               char ret_object[IDEM_OBJECT_SIZE], struct err *e)
{
    struct idem_row old, row = {.created_ms = clock_wall_ms()};
    struct err local = {0};

    if (store_idem_get(c->store, token_id, key, &old, &local) == 0) {
        if (old.created_ms + KEEP_MS > row.created_ms) {
            if (memcmp(old.hash, hash, IDEM_HASH_SIZE) != 0)
                return err_param(e, ERR_IDEMPOTENCY, "Idempotency-Key",
                                 "the key '%.128s' was used with another request", key);
            (void)snprintf(ret_object, IDEM_OBJECT_SIZE, "%s", old.object);
            *ret = IDEM_REPLAY;
            return 0;
        }
        if (store_idem_remove(c->store, token_id, key, e) < 0)
            return -1;
    } else if (local.code != ERR_NOT_FOUND) {
        if (e != NULL)
            *e = local;
        return -1;
    }
    memcpy(row.hash, hash, sizeof row.hash);
    (void)snprintf(row.object, sizeof row.object, "%s", object);
    if (store_idem_insert(c->store, token_id, key, &row, e) < 0)
        return -1;
    (void)snprintf(ret_object, IDEM_OBJECT_SIZE, "%s", object);
    *ret = IDEM_NEW;
    return 0;
}
