/*
 * url_fetch.h - a file from elsewhere becomes a layer, for ADD of a build
 */
#ifndef QS_IMAGE_URL_FETCH_H
#define QS_IMAGE_URL_FETCH_H

#include "image/job.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"

int url_fetch_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e);

#endif
