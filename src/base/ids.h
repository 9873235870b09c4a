/*
 * ids.h - object ids: a prefix and 22 characters of [0-9A-Za-z] from the kernel's random source
 *
 * Prefixes as the Modal clients know them: ap- im- sb- ta- st- vo- ... The shape (three letters or
 * fewer, dash, 22 alphanumerics) is what lets an old client take a sandbox id for generation V1.
 */
#ifndef QS_BASE_IDS_H
#define QS_BASE_IDS_H

#include <stdbool.h>
#include <stddef.h>

#define ID_SUFFIX 22
#define ID_SIZE 32          /* room for any id of ours with its NUL */

void id_make(char out[ID_SIZE], const char *prefix);          /* id_make(id, "sb-") */
bool id_is(const char *text, const char *prefix);             /* exactly prefix + 22 alphanumerics */
/* Names of sandboxes, apps, images: [A-Za-z0-9._-]{1,64}, not "." or "..", not shaped like an app id. */
bool name_is_valid(const char *text, size_t len);
/* Exec ids chosen by clients: [A-Za-z0-9._-]{1,63}, starting alphanumeric. */
bool exec_id_is_valid(const char *text);
void random_bytes(void *out, size_t n);

#endif
