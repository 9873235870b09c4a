/*
 * fold.h - what a sandbox has written becomes a layer
 */
#ifndef QS_IMAGE_FOLD_H
#define QS_IMAGE_FOLD_H

#include "image/job.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"

/* ret->layer is "" if nothing was written. */
int fold_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e);

#endif
