/*
 * image_tar_fuzz.c - whole archives, compressed or not, into a scratch directory
 *
 * What must hold: no crash, nothing outside the directory, what was unpacked can be packed, and the directory can be removed
 * again.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "image/pack.h"
#include "image/source.h"
#include "image/unpack.h"
#include "sys/fd.h"
#include "sys/rmtree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void no_progress(const struct unpack_counts *counts, void *arg)
{
}

static void unpack(int fd, int root, enum unpack_kind kind)
{
    struct unpack_limits limits = {.max_bytes = 1 << 20, .max_files = 64};
    struct unpack_counts counts;
    struct err e = {0};
    char hex[65];
    int conn[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, conn) < 0)
        abort();
    struct source *s = source_new(fd, conn[0], conn[0], &e);
    if (s != NULL && unpack_tar(s, root, kind, &limits, no_progress, NULL, &counts, &e) == 0 &&
        source_digest(s, hex, &e) < 0)
        abort();
    source_free(s);
    fd_close(&conn[0]);
    fd_close(&conn[1]);
}

static bool never(void *arg)
{
    return false;
}

/* What came of it can be read again, whole or broken off, and gives the same archive twice. */
static void pack(int root)
{
    char one[IMAGE_DIGEST_SIZE] = "", two[IMAGE_DIGEST_SIZE] = "";
    struct err e = {0};

    if (pack_sum(root, never, NULL, one, &e) < 0 || pack_sum(root, never, NULL, two, &e) < 0 || strcmp(one, two) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[] = "/tmp/qs-fuzz-XXXXXX";
    auto_close int fd = memfd_create("archive", MFD_CLOEXEC);

    if (fd < 0 || fd_write_all(fd, data, size) < 0 || lseek(fd, 0, SEEK_SET) != 0 || mkdtemp(dir) == NULL)
        abort();
    auto_close int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        abort();
    unpack(fd, root, UNPACK_ROOT);
    if (rmtree_inside(root, ".") < 0 || lseek(fd, 0, SEEK_SET) != 0)
        abort();
    unpack(fd, root, UNPACK_LAYER);
    pack(root);
    if (rmtree_inside(root, ".") < 0 || rmdir(dir) < 0)
        abort();
    return 0;
}
