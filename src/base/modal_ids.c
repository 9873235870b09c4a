/*
 * modal_ids.c - ids of the Modal dialect and the sandboxes they stand for
 */
#include "base/modal_ids.h"

#include <string.h>

#define PREFIX 3                /* "sb-" and "ta-" */
#define ULID 26

typedef unsigned __int128 u128;

static const char base62[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static const char base32[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
static const char *const task_tails[] = {"000S", "000V"};

/* n digits; false for a character that is none or a number over 128 bits. */
static bool read_number(const char *text, size_t n, const char *digits, u128 *ret)
{
    u128 base = strlen(digits), v = 0;

    for (size_t i = 0; i < n; i++) {
        const char *at = text[i] != '\0' ? strchr(digits, text[i]) : NULL;
        if (at == NULL || __builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, (u128)(at - digits), &v))
            return false;
    }
    *ret = v;
    return true;
}

static void write_number(u128 v, size_t n, const char *digits, char *out)
{
    u128 base = strlen(digits);

    for (size_t i = n; i > 0; i--, v /= base)
        out[i - 1] = digits[v % base];
    out[n] = '\0';
}

void modal_sandbox_id(const char *id, enum modal_generation g, char out[ID_SIZE])
{
    u128 v;

    memcpy(out, id, PREFIX + ID_SUFFIX + 1);
    if (g == MODAL_V2 && read_number(id + PREFIX, ID_SUFFIX, base62, &v))
        write_number(v, ULID, base32, out + PREFIX);
}

void modal_task_id(const char *id, enum modal_generation g, char out[ID_SIZE])
{
    memcpy(out, "ta-", PREFIX);
    memcpy(out + PREFIX, id + PREFIX, ID_SUFFIX);
    memcpy(out + PREFIX + ID_SUFFIX, task_tails[g], strlen(task_tails[g]) + 1);
}

static bool found(enum modal_generation g, enum modal_generation *ret_g)
{
    if (ret_g != NULL)
        *ret_g = g;
    return true;
}

bool modal_sandbox_parse(const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g)
{
    u128 v;

    if (id_is(text, "sb-")) {
        memcpy(ret_id, text, PREFIX + ID_SUFFIX + 1);
        return found(MODAL_V1, ret_g);
    }
    if (strncmp(text, "sb-", PREFIX) != 0 || strlen(text) != PREFIX + ULID || !read_number(text + PREFIX, ULID, base32, &v))
        return false;
    memcpy(ret_id, "sb-", PREFIX);
    write_number(v, ID_SUFFIX, base62, ret_id + PREFIX);
    return found(MODAL_V2, ret_g);
}

bool modal_task_parse(const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g)
{
    char id[ID_SIZE] = "sb-";

    for (int g = MODAL_V1; g <= MODAL_V2; g++) {
        if (strlen(text) != PREFIX + ID_SUFFIX + strlen(task_tails[g]) || strncmp(text, "ta-", PREFIX) != 0
            || strcmp(text + PREFIX + ID_SUFFIX, task_tails[g]) != 0)
            continue;
        memcpy(id + PREFIX, text + PREFIX, ID_SUFFIX);
        if (!id_is(id, "sb-"))
            return false;
        memcpy(ret_id, id, sizeof id);
        return found((enum modal_generation)g, ret_g);
    }
    return false;
}
