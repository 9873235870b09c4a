/*
 * verify.h - is a layer still what was unpacked?
 *
 * With every layer lies a sum of its tree (layer.c). A layer that has another one by now is marked as damaged: whoever
 * brings it again, by a pull, an import or a build, replaces it.
 */
#ifndef QS_IMAGE_VERIFY_H
#define QS_IMAGE_VERIFY_H

#include "image/job.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"

int verify_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e);

#endif
