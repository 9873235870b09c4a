/*
 * tar_format.h - the tar format: ustar, pax, GNU long names and GNU sparse files 1.0
 *
 * Pure: the reader pulls bytes through a callback and allocates nothing. Its input is a stranger's.
 */
#ifndef QS_INIT_FS_TAR_FORMAT_H
#define QS_INIT_FS_TAR_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define TAR_BLOCK 512
#define TAR_EXTRA_MAX (1024 * 1024)     /* the pax records, or a long name, of one entry */
#define TAR_SEGMENTS_MAX 16384          /* of one sparse file */

enum tar_type { TAR_FILE, TAR_HARDLINK, TAR_SYMLINK, TAR_CHAR, TAR_BLOCK_DEVICE, TAR_DIRECTORY, TAR_FIFO };

struct tar_entry {
    enum tar_type type;
    const char *path, *link;            /* NUL-terminated; link is "" unless it is a link */
    uint32_t mode;                      /* permission bits */
    uint32_t uid, gid;
    int64_t size;                       /* of the file; the archive may hold fewer bytes */
    struct timespec mtime;
    uint32_t major, minor;
    bool sparse;                        /* content comes in segments */
};

struct tar_segment {
    int64_t offset, length;
};

/* Up to n bytes: the count, 0 at the end, or -errno. */
typedef ssize_t tar_read_fn(void *context, void *p, size_t n);

struct tar_reader {
    tar_read_fn *read;
    void *context;
    int64_t left;                       /* stored content of the current entry not read yet */
    int64_t padding;                    /* behind it */
    const char *problem;                /* why -EBADMSG or -EOPNOTSUPP */
    size_t nsegments;
    struct tar_segment segments[TAR_SEGMENTS_MAX];
    size_t pax_len;
    char pax[TAR_EXTRA_MAX + 1];        /* records "length name=value\n" of the current entry */
    char path[TAR_EXTRA_MAX + 1], link[TAR_EXTRA_MAX + 1];
};

void tar_reader_init(struct tar_reader *r, tar_read_fn *read, void *context);   /* `r` need not be clear */
/*
 * 1 = an entry, whose strings live until the next call; 0 = the end mark; -ENODATA = the archive stops without one;
 * -EBADMSG (malformed), -EOPNOTSUPP (something else than tar, or a kind we do not unpack), or the callback's.
 */
int tar_next(struct tar_reader *r, struct tar_entry *ret);
/* Content of the current entry: the count, 0 at its end, or as above. */
ssize_t tar_content(struct tar_reader *r, void *p, size_t n);
/* Iterates SCHILY.xattr.* records. *at is 0 at first. */
bool tar_xattr(const struct tar_reader *r, size_t *at, const char **ret_name, size_t *ret_name_len,
               const char **ret_value, size_t *ret_len);

/* Writing. A header block; numbers that do not fit are left to pax records, see tar_needs_pax. */
void tar_header(unsigned char out[TAR_BLOCK], char type, const char *path, const char *link,
                const struct tar_entry *e, int64_t stored);
/* Length of the record, which is written if `out` is not NULL. */
size_t tar_pax_record(char *out, const char *name, const void *value, size_t len);

#endif
