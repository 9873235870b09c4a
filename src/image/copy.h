/*
 * copy.h - COPY and ADD of a build: files of one image or context become a layer on top of another
 */
#ifndef QS_IMAGE_COPY_H
#define QS_IMAGE_COPY_H

#include "image/chain.h"
#include "image/job.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"

int copy_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e);

/* copy_owner.c: "user[:group]" by the passwd and group files of the image. */
int copy_owner(const struct chain_dir *base, const char *text, uid_t *ret_uid, gid_t *ret_gid, struct err *e);

#endif
