/*
 * stale.h - what nobody needs any more beside the layers; looked for when the role starts
 */
#ifndef QS_IMAGE_STALE_H
#define QS_IMAGE_STALE_H

void stale_drop(int layers);

#endif
