/*
 * stale.h - what nobody needs any more beside the layers
 */
#ifndef QS_IMAGE_STALE_H
#define QS_IMAGE_STALE_H

/* When the role starts, and no job runs. */
void stale_drop(int layers);
/* Blobs, and parts of them, that nobody has gone on with for a day: pulls may run. */
void stale_blobs_drop(int layers);

#endif
