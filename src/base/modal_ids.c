/*
 * modal_ids.c - ids of the Modal dialect and the sandboxes they stand for
 */
#include "base/modal_ids.h"

#include <string.h>

#define PREFIX 3                /* "sb-" and "ta-" */

static const char sandbox_tail[] = "0000";
static const char *const task_tails[] = {"000S", "000V"};

static void join(const char *prefix, const char *id, const char *tail, char out[ID_SIZE])
{
    memcpy(out, prefix, PREFIX);
    memcpy(out + PREFIX, id + PREFIX, ID_SUFFIX);
    memcpy(out + PREFIX + ID_SUFFIX, tail, strlen(tail) + 1);
}

void modal_sandbox_id(const char *id, enum modal_generation g, char out[ID_SIZE])
{
    join("sb-", id, g == MODAL_V1 ? "" : sandbox_tail, out);
}

void modal_task_id(const char *id, enum modal_generation g, char out[ID_SIZE])
{
    join("ta-", id, task_tails[g], out);
}

/* prefix, 22 alphanumerics, tail: as a sandbox id of ours into ret_id. */
static bool take(const char *text, const char *prefix, const char *tail, char ret_id[ID_SIZE])
{
    char id[ID_SIZE] = "sb-";

    if (strlen(text) != PREFIX + ID_SUFFIX + strlen(tail) || strncmp(text, prefix, PREFIX) != 0 ||
        strcmp(text + PREFIX + ID_SUFFIX, tail) != 0)
        return false;
    memcpy(id + PREFIX, text + PREFIX, ID_SUFFIX);
    if (!id_is(id, "sb-"))
        return false;
    memcpy(ret_id, id, sizeof id);
    return true;
}

static bool found(enum modal_generation g, enum modal_generation *ret_g)
{
    if (ret_g != NULL)
        *ret_g = g;
    return true;
}

bool modal_sandbox_parse(const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g)
{
    if (take(text, "sb-", "", ret_id))
        return found(MODAL_V1, ret_g);
    return take(text, "sb-", sandbox_tail, ret_id) && found(MODAL_V2, ret_g);
}

bool modal_task_parse(const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g)
{
    for (int g = MODAL_V1; g <= MODAL_V2; g++)
        if (take(text, "ta-", task_tails[g], ret_id))
            return found((enum modal_generation)g, ret_g);
    return false;
}
