/*
 * tar_out.c - TarOut: a tree as a pax archive on stdout
 *
 * Sockets are left out, other mounts are not entered, several names of one file stay one file, and holes
 * stay holes. Names are relative to the tree.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "init/fs/op.h"
#include "init/fs/path.h"
#include "init/fs/signs.h"
#include "init/fs/tar_format.h"
#include "init/fs/walk.h"
#include "sys/fd.h"

#define PAX_MAX TAR_EXTRA_MAX
#define BUCKETS 4096

/* A file with several names that has been written once. */
struct seen {
    struct seen *next;
    dev_t dev;
    ino_t ino;
    char path[];
};

struct packer {
    struct out *out;
    struct arena arena;
    struct seen *seen[BUCKETS];
    bool changed;                       /* a file shrank while it was read */
    size_t pax_len;
    char pax[PAX_MAX];
    size_t nsegments;
    struct tar_segment segments[TAR_SEGMENTS_MAX];
};

static void pad(struct out *o, int64_t size)
{
    static const char zero[TAR_BLOCK];

    out_bytes(o, zero, (size_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK));
}

static int record(struct packer *p, const char *name, const void *value, size_t len)
{
    size_t n = tar_pax_record(NULL, name, value, len);

    if (n > sizeof p->pax - p->pax_len)
        return -E2BIG;
    (void)tar_pax_record(p->pax + p->pax_len, name, value, len);
    p->pax_len += n;
    return 0;
}

static int record_number(struct packer *p, const char *name, int64_t v)
{
    char text[24];

    return record(p, name, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v));
}

static int record_time(struct packer *p, const struct timespec *t)
{
    char text[48];
    long long sec = t->tv_sec;
    long nsec = t->tv_nsec;
    const char *sign = sec < 0 ? "-" : "";

    if (sec < 0) {
        sec = -sec;
        if (nsec > 0) {
            sec--;
            nsec = 1000000000 - nsec;
        }
    }
    int n = nsec == 0 ? snprintf(text, sizeof text, "%s%lld", sign, sec)
                      : snprintf(text, sizeof text, "%s%lld.%09ld", sign, sec, nsec);
    return record(p, "mtime", text, (size_t)n);
}

/* What the plain header cannot hold. Names stay the bytes they are, as in other programs' archives. */
static int records(struct packer *p, const char *path, const char *link, const struct tar_entry *e,
                   int64_t stored)
{
    int r = 0;

    if (strlen(path) > 100 && !e->sparse)
        r = record(p, "path", path, strlen(path));
    if (r == 0 && strlen(link) > 100)
        r = record(p, "linkpath", link, strlen(link));
    if (r == 0 && stored > 077777777777LL)
        r = record_number(p, "size", stored);
    if (r == 0 && e->uid > 07777777)
        r = record_number(p, "uid", e->uid);
    if (r == 0 && e->gid > 07777777)
        r = record_number(p, "gid", e->gid);
    if (r == 0 && (e->mtime.tv_nsec != 0 || e->mtime.tv_sec < 0 || e->mtime.tv_sec > 077777777777LL))
        r = record_time(p, &e->mtime);
    return r;
}

static void headers(struct packer *p, char type, const char *path, const char *link,
                    const struct tar_entry *e, int64_t stored)
{
    unsigned char block[TAR_BLOCK];
    struct tar_entry x = {.mode = 0644};

    if (p->pax_len > 0) {
        tar_header(block, 'x', "PaxHeaders/0", "", &x, (int64_t)p->pax_len);
        out_bytes(p->out, block, sizeof block);
        out_bytes(p->out, p->pax, p->pax_len);
        pad(p->out, (int64_t)p->pax_len);
    }
    tar_header(block, type, path, link, e, stored);
    out_bytes(p->out, block, sizeof block);
}

/* By the path through /proc: links have attributes too, and a file need not be readable for them. */
static int xattrs(struct packer *p, int dirfd, const char *name)
{
    static char names[64 * 1024], value[64 * 1024], key[300];
    char path[300];

    if (snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dirfd, name) >= (int)sizeof path)
        return -ENAMETOOLONG;
    ssize_t n = llistxattr(path, names, sizeof names);
    for (const char *x = names; n > 0 && x < names + n; x += strlen(x) + 1) {
        if (!xattr_is_content(x))
            continue;
        ssize_t len = lgetxattr(path, x, value, sizeof value);
        if (len < 0)
            continue;                   /* gone, or not ours to read */
        snprintf(key, sizeof key, "SCHILY.xattr.%.255s", x);
        int r = record(p, key, value, (size_t)len);
        if (r < 0)
            return r;
    }
    return 0;
}

static struct seen **bucket(struct packer *p, const struct stat *st)
{
    uint64_t h = (uint64_t)st->st_ino * 0x9e3779b97f4a7c15u + (uint64_t)st->st_dev;

    return &p->seen[(h >> 40) % BUCKETS];
}

/* The name under which the file is in the archive already; else remembers this one. */
static const char *known_as(struct packer *p, const struct stat *st, const char *path)
{
    struct seen **b = bucket(p, st);

    for (struct seen *s = *b; s != NULL; s = s->next)
        if (s->dev == st->st_dev && s->ino == st->st_ino)
            return s->path;
    size_t n = strlen(path) + 1;
    struct seen *s = arena_alloc(&p->arena, sizeof *s + n);
    *s = (struct seen){.next = *b, .dev = st->st_dev, .ino = st->st_ino};
    memcpy(s->path, path, n);
    *b = s;
    return NULL;
}

/* Fills p->segments if the file has holes worth keeping. */
static void find_holes(struct packer *p, int fd, const struct stat *st)
{
    int64_t at = 0;

    p->nsegments = 0;
    if ((int64_t)st->st_blocks * 512 >= st->st_size)
        return;
    while (at < st->st_size && p->nsegments < TAR_SEGMENTS_MAX - 2) {
        int64_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            break;                      /* cannot tell: the rest counts as data */
        if (data < 0 || data >= st->st_size) {
            at = st->st_size;
            break;
        }
        int64_t hole = lseek(fd, data, SEEK_HOLE);
        if (hole < 0 || hole > st->st_size)
            hole = st->st_size;
        p->segments[p->nsegments++] = (struct tar_segment){data, hole - data};
        at = hole;
    }
    if (at < st->st_size)
        p->segments[p->nsegments++] = (struct tar_segment){at, st->st_size - at};
    if (p->nsegments == 1 && p->segments[0].length == st->st_size)
        p->nsegments = 0;
    else    /* an empty last piece says where a hole at the end ends; readers rely on it */
        p->segments[p->nsegments++] = (struct tar_segment){st->st_size, 0};
}

static int content(struct packer *p, int fd, int64_t at, int64_t length)
{
    static char buffer[128 * 1024];
    bool ended = false;

    while (length > 0 && p->out->error == 0) {
        size_t want = length < (int64_t)sizeof buffer ? (size_t)length : sizeof buffer;
        ssize_t n = ended ? 0 : pread(fd, buffer, want, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0) {                   /* the header has promised more */
            memset(buffer, 0, want);
            n = (ssize_t)want;
            ended = p->changed = true;
        }
        out_bytes(p->out, buffer, (size_t)n);
        at += n;
        length -= n;
    }
    return 0;
}

static int sparse_file(struct packer *p, int fd, const char *path, struct tar_entry *e)
{
    static char map[TAR_SEGMENTS_MAX * 42];
    char short_name[100];
    const char *slash = strrchr(path, '/');
    int64_t stored = 0;
    size_t n = (size_t)snprintf(map, sizeof map, "%zu\n", p->nsegments);

    for (size_t i = 0; i < p->nsegments; i++) {
        stored += p->segments[i].length;
        n += (size_t)snprintf(map + n, sizeof map - n, "%lld\n%lld\n", (long long)p->segments[i].offset,
                              (long long)p->segments[i].length);
    }
    size_t map_size = (n + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    memset(map + n, 0, map_size - n);

    e->sparse = true;
    int r = record_number(p, "GNU.sparse.major", 1);
    if (r == 0)
        r = record_number(p, "GNU.sparse.minor", 0);
    if (r == 0)
        r = record(p, "GNU.sparse.name", path, strlen(path));
    if (r == 0)
        r = record_number(p, "GNU.sparse.realsize", e->size);
    if (r == 0)
        r = records(p, path, "", e, (int64_t)map_size + stored);
    if (r < 0)
        return r;
    snprintf(short_name, sizeof short_name, "GNUSparseFile.0/%s", slash != NULL ? slash + 1 : path);
    headers(p, '0', short_name, "", e, (int64_t)map_size + stored);
    out_bytes(p->out, map, map_size);
    for (size_t i = 0; i < p->nsegments && r == 0; i++)
        r = content(p, fd, p->segments[i].offset, p->segments[i].length);
    pad(p->out, stored);
    return r;
}

static int regular_file(struct packer *p, int dirfd, const char *name, const char *path, struct tar_entry *e)
{
    struct stat st;
    auto_close int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ESTALE;                 /* replaced since it was listed */
    e->size = st.st_size;
    find_holes(p, fd, &st);
    if (p->nsegments > 0)
        return sparse_file(p, fd, path, e);
    int r = records(p, path, "", e, e->size);
    if (r < 0)
        return r;
    headers(p, '0', path, "", e, e->size);
    r = content(p, fd, 0, e->size);
    pad(p->out, e->size);
    return r;
}

static int plain_entry(struct packer *p, char type, const char *path, const char *link, const struct tar_entry *e)
{
    int r = records(p, path, link, e, 0);

    if (r == 0)
        headers(p, type, path, link, e, 0);
    return r;
}

static int symlink_entry(struct packer *p, int dirfd, const char *name, const char *path,
                         const struct tar_entry *e)
{
    char target[LIMIT_PATH + 1];
    ssize_t n = readlinkat(dirfd, name, target, sizeof target - 1);

    if (n < 0)
        return -errno;
    target[n] = '\0';
    return plain_entry(p, '2', path, target, e);
}

/* One entry; `path` is its name in the archive, directories with their slash. */
static int entry(struct packer *p, int dirfd, const char *name, const char *path, const struct stat *st)
{
    struct tar_entry e = {
        .mode = st->st_mode & 07777,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .mtime = st->st_mtim,
    };

    p->pax_len = 0;
    if (S_ISSOCK(st->st_mode))
        return 0;
    if (!S_ISDIR(st->st_mode) && st->st_nlink > 1) {
        const char *first = known_as(p, st, path);
        if (first != NULL)
            return plain_entry(p, '1', path, first, &e);
    }
    if (!S_ISLNK(st->st_mode)) {
        int r = xattrs(p, dirfd, name);
        if (r < 0)
            return r;
    }
    switch (st->st_mode & S_IFMT) {
    case S_IFREG:
        return regular_file(p, dirfd, name, path, &e);
    case S_IFDIR:
        return plain_entry(p, '5', path, "", &e);
    case S_IFLNK:
        return symlink_entry(p, dirfd, name, path, &e);
    case S_IFIFO:
        return plain_entry(p, '6', path, "", &e);
    default:
        e.major = major(st->st_rdev);
        e.minor = minor(st->st_rdev);
        return plain_entry(p, S_ISCHR(st->st_mode) ? '3' : '4', path, "", &e);
    }
}

static int tree(struct packer *p, int fd, struct fs_error *e)
{
    static struct walk walk;
    static char path[WALK_PATH_SIZE + 1];
    struct walk_entry w;
    struct stat st;

    int r = fstat(fd, &st) < 0 ? -errno : entry(p, fd, ".", "./", &st);
    if (r < 0) {
        fd_close(&fd);
        return fs_fail(e, -r);
    }
    r = walk_begin(&walk, fd);
    while (r == 0 && p->out->error == 0) {
        r = walk_next(&walk, &w);
        if (r <= 0)
            break;
        if (r == WALK_LEAVE) {
            r = 0;
            continue;
        }
        bool dir = S_ISDIR(w.st.st_mode);
        snprintf(path, sizeof path, "%s%s", w.path, dir ? "/" : "");
        r = entry(p, w.dirfd, w.name, path, &w.st);
        if (r == -ENOENT)               /* gone before it was opened, and nothing of it written */
            r = 0;
        else if (r == 0 && dir && !is_mount_root(w.dirfd, w.name))
            r = walk_enter(&walk);
    }
    if (r < 0)
        (void)fs_fail_at(e, -r, walk.path);
    walk_done(&walk);
    return r < 0 ? -1 : 0;
}

int op_tar_out(struct op *o, struct fs_error *e)
{
    static struct packer p;
    static const char end[2 * TAR_BLOCK];
    static struct signs signs;
    const char *given, *name;
    char *dir;
    struct stat st;

    if (arg_path(o, "path", &given, e) < 0 || op_signs(o, &signs, e) < 0)
        return -1;
    p.out = o->out;
    if (stat(given, &st) < 0)
        return fs_fail(e, errno);
    if (S_ISDIR(st.st_mode)) {
        int fd = open(given, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return fs_fail(e, errno);
        if (tree(&p, fd, e) < 0)
            return -1;
    } else {
        path_split(o->arena, path_trim(o->arena, given), &dir, &name);
        auto_close int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return fs_fail(e, errno);
        int r = entry(&p, fd, name, name, &st);
        if (r < 0)
            return fs_fail(e, -r);
    }
    out_bytes(o->out, end, sizeof end);
    int r = out_flush(o->out);
    if (r < 0)
        return fs_fail(e, -r);
    return p.changed ? fs_fail_kind(e, "Changed", "a file became shorter while it was read") : 0;
}
