/*
 * export.h - an image of this node as one tar: an OCI layout, with the manifest.json that `docker load` looks for
 */
#ifndef QS_IMAGE_EXPORT_H
#define QS_IMAGE_EXPORT_H

#include "image/job.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"

/* The archive goes to the pipe that came with the request. What went out before a failure is no archive: its end is missing. */
int export_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e);

#endif
