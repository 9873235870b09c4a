/*
 * image_link.c - one job of the image role, asked for by a call
 */
#include "node/image_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sys/fd.h"

void image_link_init(struct image_link *l, const struct image_link_ops *ops)
{
    l->ops = ops;
    l->fd = -1;
    l->io = NULL;
}

void image_link_close(struct image_link *l)
{
    loop_io_free(l->io);
    l->io = NULL;
    fd_close(&l->fd);
}

static void fail(struct op *op, enum err_code code, const char *why)
{
    struct err e;

    err_set(&e, code, "%s", why);
    op_fail(op, &e);
}

/* The job has ended: nothing more is read, which matters if the op goes on. */
static void on_done(struct op *op, struct image_link *l, const struct chan_msg *m)
{
    struct image_done d;

    if (image_done_decode(&d, m->data, m->len) < 0)
        fail(op, ERR_INTERNAL, "the image role sent a reply that cannot be read");
    else if (d.code != ERR_OK)
        fail(op, d.code < ERR_MAX_ ? (enum err_code)d.code : ERR_INTERNAL, d.message);
    else {
        loop_io_set(l->io, 0);
        if (l->ops->done(op, &d) < 0)
            fail(op, ERR_INTERNAL, "the image role sent a reply that cannot be read");
    }
}

static void on_link(int fd, unsigned what, void *arg)
{
    struct op *op = arg;
    struct image_link *l = op->state;

    (void)what;
    for (;;) {
        struct chan_msg m;
        int r = chan_recv(fd, l->space, sizeof l->space, CHAN_NO_FDS, &m);
        if (r == -EAGAIN)
            return;
        if (r <= 0) {
            fail(op, ERR_UNAVAILABLE, "the image role went away");
            return;
        }
        if (m.type == IMAGE_DONE) {
            on_done(op, l, &m);
            return;
        }
        r = l->ops->message != NULL ? l->ops->message(op, &m) : m.type == IMAGE_PROGRESS ? 0 : -1;
        if (r < 0) {
            fail(op, ERR_INTERNAL, "the image role sent a reply that cannot be read");
            return;
        }
    }
}

int image_link_ask(struct op *op, enum image_type type, const void *p, size_t n, int pass, struct err *e)
{
    struct image_link *l = op->state;
    char path[256];

    if (n == 0)
        return err_set(e, ERR_TOO_LARGE, "the request to the image role does not fit into a message");
    (void)snprintf(path, sizeof path, "%s/image.sock", op->node->conf.run_dir);
    int r = chan_connect(path, &l->fd);
    if (r < 0)
        return err_set(e, ERR_UNAVAILABLE, "the image role cannot be reached: %s", strerror(-r));
    r = chan_send(l->fd, (uint16_t)type, 1, p, n, pass >= 0 ? &pass : NULL, pass >= 0 ? 1 : 0);
    if (r < 0)
        return err_sys(e, -r, "ask the image role");
    l->io = loop_io_new(op->node->loop, l->fd, LOOP_READ, on_link, op);
    return 0;
}

int image_link_text(const char *field, const char *text, char *out, size_t size, struct err *e)
{
    if (text != NULL && strlen(text) >= size)
        return err_param(e, ERR_TOO_LARGE, field, "%s is longer than %zu bytes", field, size - 1);
    (void)snprintf(out, size, "%s", text != NULL ? text : "");
    return 0;
}
