/*
 * image_link.h - one job of the image role, asked for by a call
 *
 * A connection a job: closing it cancels the job. Every wait ends: the role answers, or its connection breaks. Used by image.c,
 * image_pull.c, image_build.c and image_export.c; the link is part of the op's state, on_free of the op calls image_link_close.
 */
#ifndef QS_NODE_IMAGE_LINK_H
#define QS_NODE_IMAGE_LINK_H

#include "ipc/channel.h"
#include "ipc/image_proto.h"
#include "node/node.h"

struct image_link_ops {
    /* What comes before the end, progress too: 0, or -1 if it cannot be read, which fails the op. NULL: only progress may
     * come. */
    int (*message)(struct op *op, const struct chan_msg *m);
    /* The job has succeeded; ends the op now or later. -1 if the answer makes no sense. A job that failed fails the op by
     * itself. */
    int (*done)(struct op *op, const struct image_done *d);
};

struct image_link {
    const struct image_link_ops *ops;
    int fd;
    struct loop_io *io;
    uint8_t space[LIMIT_CHANNEL_INLINE];
};

void image_link_init(struct image_link *l, const struct image_link_ops *ops);
void image_link_close(struct image_link *l);
/* Sends the request, `pass` (-1 = none) with it; n = 0 means that it could not be encoded. `link` is found again by the op's
 * state, of which it is the first member. */
int image_link_ask(struct op *op, enum image_type type, const void *p, size_t n, int pass, struct err *e);
/* Text of a request into a message, with the field's name in the error. */
int image_link_text(const char *field, const char *text, char *out, size_t size, struct err *e);

#endif
