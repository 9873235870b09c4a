/*
 * modal_ids.h - ids of the Modal dialect and the sandboxes they stand for
 *
 * Modal's clients tell two generations of sandboxes by the id alone: "sb-" and 22 characters is V1; anything else is V2, to some
 * only a ULID after "sb-". They tell those of tasks by the last character, S or V. So one sandbox of ours, sb-<22>, has these
 * names:
 *
 *   V1 sandbox   sb-<22>             task   ta-<22>000S
 *   V2 sandbox   sb-<ULID>           task   ta-<22>000V
 *
 * The ULID is the number that the 22 characters are in base 62, as 26 characters of Crockford's base 32. An id over 128 bits,
 * which id_make does not make, has no ULID and goes by its V1 name.
 *
 * Called by control, which hands them out, and by the node, which is asked with them. Pure functions.
 */
#ifndef QS_BASE_MODAL_IDS_H
#define QS_BASE_MODAL_IDS_H

#include <stdbool.h>

#include "base/ids.h"

enum modal_generation { MODAL_V1, MODAL_V2 };

/* `id` is one of ours (id_is(id, "sb-")). */
void modal_sandbox_id(const char *id, enum modal_generation g, char out[ID_SIZE]);
void modal_task_id(const char *id, enum modal_generation g, char out[ID_SIZE]);

/* Our id of what a client names; false for what is no such id (*ret_g may be NULL). */
bool modal_sandbox_parse(const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g);
bool modal_task_parse(const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g);

#endif
