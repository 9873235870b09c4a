/*
 * idempotency.h - a repeated request finds the object of the first one
 *
 * A key belongs to the token that used it. The object's id is chosen before anything is done and
 * stored with the key, so a repeat after a crash names the same object; starting it must be
 * idempotent on that id (node Create and ExecStart are). Keys are kept 24 h.
 */
#ifndef QS_CORE_IDEMPOTENCY_H
#define QS_CORE_IDEMPOTENCY_H

#include <stdint.h>

#include "base/err.h"

#define IDEM_KEY_MAX 128
#define IDEM_OBJECT_SIZE 64
#define IDEM_HASH_SIZE 32

struct core;

enum idem_result { IDEM_NEW, IDEM_REPLAY };

/* Claims `key` for `object`. NEW: committed, go on. REPLAY: the same request came before,
 * ret_object is its object. -1: ERR_IDEMPOTENCY when the key was used with another request
 * (hash), or the store failed. */
int idem_begin(struct core *c, const char *token_id, const char *key, const uint8_t hash[IDEM_HASH_SIZE],
               const char *object, enum idem_result *ret, char ret_object[IDEM_OBJECT_SIZE], struct err *e);

#endif
