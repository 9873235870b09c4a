/*
 * jks.h - certificates as a store that Java reads
 */
#ifndef QS_INIT_FS_JKS_H
#define QS_INIT_FS_JKS_H

#include <stddef.h>
#include <stdint.h>

#include "init/fs/arena.h"

/* A store of the certificates in the PEM text, in the arena; what cannot be one is left out. */
uint8_t *jks_from_pem(struct arena *a, const char *pem, size_t *ret_len);

#endif
