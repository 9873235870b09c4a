/*
 * pull.h - an image of a registry becomes layers
 */
#ifndef QS_IMAGE_PULL_H
#define QS_IMAGE_PULL_H

#include "image/job.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"

/* The layer with nothing in it, for images that have none: the SHA-256 of an empty tar. */
#define LAYER_EMPTY "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"

/* Answers with everything but the DONE, which is the caller's to send. */
int pull_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e);

#endif
