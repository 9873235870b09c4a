/*
 * init_tar_fuzz.c - the archive reader of the file helper
 *
 * Whatever comes in, it ends, names are terminated, and sparse pieces lie within the file in order.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "init/fs/tar_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *data;
    size_t left;
};

/* In odd portions, as from a pipe. */
static ssize_t take(void *context, void *p, size_t n)
{
    struct input *in = context;

    if (n > in->left)
        n = in->left;
    if (n > 700)
        n = 700;
    if (n > 0)
        memcpy(p, in->data, n);
    in->data += n;
    in->left -= n;
    return (ssize_t)n;
}

static void check(const struct tar_reader *r, const struct tar_entry *e)
{
    const char *name, *value;
    size_t at = 0, n, len;
    int64_t end = 0;

    if (e->path[0] == '\0' || strlen(e->path) > TAR_EXTRA_MAX || strlen(e->link) > TAR_EXTRA_MAX)
        abort();
    if (e->size < 0 || e->mode > 07777 || e->mtime.tv_nsec < 0 || e->mtime.tv_nsec > 999999999)
        abort();
    if (!e->sparse && e->type != TAR_FILE && e->size != 0)
        abort();
    for (size_t i = 0; i < r->nsegments; i++) {
        if (r->segments[i].offset < end || r->segments[i].length < 0 ||
            r->segments[i].offset + r->segments[i].length > e->size)
            abort();
        end = r->segments[i].offset + r->segments[i].length;
    }
    while (tar_xattr(r, &at, &name, &n, &value, &len))
        if (n == 0 || value < r->pax || value + len > r->pax + r->pax_len)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tar_reader r;
    struct input in = {data, size};
    struct tar_entry e;
    char content[1000];
    int k;

    tar_reader_init(&r, take, &in);
    while ((k = tar_next(&r, &e)) > 0) {
        check(&r, &e);
        /* Part of the content, so that the reader has to skip the rest. */
        (void)tar_content(&r, content, sizeof content);
    }
    if (k == -EBADMSG && r.problem[0] == '\0')
        abort();
    return 0;
}
