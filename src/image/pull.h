/*
 * pull.h - an image of a registry becomes layers
 */
#ifndef QS_IMAGE_PULL_H
#define QS_IMAGE_PULL_H

#include "image/job.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"

/* Answers with everything but the DONE, which is the caller's to send. */
int pull_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e);

#endif
