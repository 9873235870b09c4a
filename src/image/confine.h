/*
 * confine.h - the last privileges that a job's processes give up before the first byte of a stranger
 *
 * The role's own filter (main.c) allows what any of its processes needs; each takes the rest away from itself.
 */
#ifndef QS_IMAGE_CONFINE_H
#define QS_IMAGE_CONFINE_H

#include "base/err.h"

/* Unpacking and copying: no network, no new process. */
int confine_unpacker(struct err *e);
/* Fetching: the network, but no capability, and of the file system the programs' own directories to read and `blobs` (-1 =
 * none) to write. */
int confine_fetcher(int blobs, struct err *e);

#endif
