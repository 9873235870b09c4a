/*
 * names.h - what is in a directory, and which extended attributes are carried along
 */
#ifndef QS_IMAGE_NAMES_H
#define QS_IMAGE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Names in a directory, sorted by bytes; 0 or -errno. names_free frees each and the list. */
int names_read(int dir, char ***ret, size_t *ret_n);
void names_free(char **names, size_t n);

/* Attributes that mean something to a program in a sandbox. Those of overlay would mean something to the host's mount. */
bool xattr_is_kept(const char *name);
/* Those of an open file that are carried along, sorted; 0 or -errno. names_free. */
int xattrs_read(int fd, char ***ret, size_t *ret_n);

#endif
