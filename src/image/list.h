/*
 * list.h - which layers lie here
 */
#ifndef QS_IMAGE_LIST_H
#define QS_IMAGE_LIST_H

#include "image/job.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"

int list_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e);

#endif
