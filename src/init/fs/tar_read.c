/*
 * tar_read.c - archives of strangers, entry by entry
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "init/fs/tar_format.h"

static int bad(struct tar_reader *r, const char *problem)
{
    r->problem = problem;
    return -EBADMSG;
}

void tar_reader_init(struct tar_reader *r, tar_read_fn *read, void *context)
{
    r->read = read;
    r->context = context;
    r->left = r->padding = 0;
    r->problem = "";
    r->nsegments = 0;
    r->pax_len = 0;
}

/* All n bytes: 1; none at all: 0; fewer: -ENODATA. */
static int read_exactly(struct tar_reader *r, void *p, size_t n)
{
    size_t got = 0;

    while (got < n) {
        ssize_t k = r->read(r->context, (char *)p + got, n - got);
        if (k < 0)
            return (int)k;
        if (k == 0)
            return got == 0 ? 0 : -ENODATA;
        got += (size_t)k;
    }
    return 1;
}

/* Octal text, or base 256 if the top bit is set. */
static bool number(const unsigned char *p, size_t n, int64_t *ret)
{
    if ((p[0] & 0x80) != 0) {
        int64_t v = (p[0] & 0x40) != 0 ? -1 : 0;
        v = (int64_t)((uint64_t)v << 6 | (p[0] & 0x3f));
        for (size_t i = 1; i < n; i++) {
            if (v > INT64_MAX >> 8 || v < INT64_MIN >> 8)
                return false;
            v = (int64_t)((uint64_t)v << 8 | p[i]);
        }
        *ret = v;
        return true;
    }
    size_t i = 0;
    uint64_t v = 0;
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v > (uint64_t)INT64_MAX >> 3)
            return false;
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    while (i < n && (p[i] == ' ' || p[i] == '\0'))
        i++;
    *ret = (int64_t)v;
    return i == n;
}

static bool id_number(const unsigned char *p, uint32_t *ret)
{
    int64_t v;

    if (!number(p, 8, &v) || v < 0 || v >= UINT32_MAX)
        return false;
    *ret = (uint32_t)v;
    return true;
}

static bool checksum_ok(const unsigned char *h)
{
    int64_t stated;
    int64_t plain = 0, with_sign = 0;       /* some old programs added signed bytes */

    for (int i = 0; i < TAR_BLOCK; i++) {
        unsigned char c = i >= 148 && i < 156 ? ' ' : h[i];
        plain += c;
        with_sign += (signed char)c;
    }
    return number(h + 148, 8, &stated) && (stated == plain || stated == with_sign);
}

static bool all_zero(const unsigned char *h)
{
    for (int i = 0; i < TAR_BLOCK; i++)
        if (h[i] != 0)
            return false;
    return true;
}

static void field_copy(char *out, const unsigned char *p, size_t n)
{
    size_t len = 0;

    while (len < n && p[len] != 0)
        len++;
    memcpy(out, p, len);
    out[len] = '\0';
}

static int64_t padding_of(int64_t size)
{
    return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
}

static int skip(struct tar_reader *r)
{
    char waste[4096];
    int64_t n = r->left + r->padding;

    while (n > 0) {
        size_t part = n < (int64_t)sizeof waste ? (size_t)n : sizeof waste;
        int k = read_exactly(r, waste, part);
        if (k <= 0)
            return k == 0 ? -ENODATA : k;
        n -= (int64_t)part;
    }
    r->left = r->padding = 0;
    return 0;
}

/* The content of a header that describes the next one: exactly `size` bytes and padding. */
static int read_extra(struct tar_reader *r, int64_t size, char *out)
{
    char waste[TAR_BLOCK];
    size_t pad = (size_t)padding_of(size);

    if (size < 0 || size > TAR_EXTRA_MAX)
        return bad(r, "a name or its attributes are too long");
    if (size > 0 && read_exactly(r, out, (size_t)size) <= 0)
        return -ENODATA;
    if (pad > 0 && read_exactly(r, waste, pad) <= 0)
        return -ENODATA;
    out[size] = '\0';
    return 0;
}

/* The record at *at: moves *at behind it. False at the end or if it is malformed (*at is then not pax_len). */
static bool pax_record(const struct tar_reader *r, size_t *at, const char **name, size_t *name_len,
                       const char **value, size_t *len)
{
    const char *p = r->pax + *at;
    size_t left = r->pax_len - *at, total = 0, i = 0;

    while (i < left && p[i] >= '0' && p[i] <= '9' && total <= TAR_EXTRA_MAX)
        total = total * 10 + (size_t)(p[i++] - '0');
    if (i == 0 || i >= left || p[i] != ' ' || total > left || total < i + 3 || p[total - 1] != '\n')
        return false;
    *name = p + i + 1;
    size_t body = total - i - 2;        /* without blank and newline */
    const char *eq = memchr(*name, '=', body);
    if (eq == NULL || eq == *name)
        return false;
    *name_len = (size_t)(eq - *name);
    *value = eq + 1;
    *len = body - *name_len - 1;
    *at += total;
    return true;
}

static bool decimal(const char *p, size_t n, int64_t *ret)
{
    int64_t v = 0;

    if (n == 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (p[i] < '0' || p[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, p[i] - '0', &v))
            return false;
    *ret = v;
    return true;
}

static bool pax_time(const char *p, size_t n, struct timespec *ret)
{
    bool negative = n > 0 && p[0] == '-';
    const char *dot = memchr(p, '.', n);
    size_t whole = dot != NULL ? (size_t)(dot - p) : n;
    int64_t sec;
    long nsec = 0;

    if (!decimal(p + negative, whole - negative, &sec))
        return false;
    if (dot != NULL) {
        long scale = 100000000;
        for (const char *d = dot + 1; d < p + n; d++, scale /= 10) {
            if (*d < '0' || *d > '9')
                return false;
            nsec += (*d - '0') * scale;
        }
    }
    if (negative) {
        sec = -sec;
        if (nsec > 0) {
            sec--;
            nsec = 1000000000 - nsec;
        }
    }
    ret->tv_sec = (time_t)sec;
    ret->tv_nsec = nsec;
    return true;
}

struct pax_facts {
    bool path, link, name;
    int64_t size, realsize;
    int64_t major, minor;
};

static bool is_key(const char *name, size_t n, const char *key)
{
    return n == strlen(key) && memcmp(name, key, n) == 0;
}

static int pax_string(struct tar_reader *r, const char *value, size_t len, char *out)
{
    if (len == 0 || memchr(value, '\0', len) != NULL)
        return bad(r, "a name in the attributes is malformed");
    memcpy(out, value, len);
    out[len] = '\0';
    return 0;
}

static int pax_apply_one(struct tar_reader *r, struct tar_entry *e, struct pax_facts *f, const char *name,
                         size_t n, const char *value, size_t len)
{
    int64_t v;

    if (is_key(name, n, "path") && !f->name) {
        f->path = true;
        return pax_string(r, value, len, r->path);
    }
    if (is_key(name, n, "GNU.sparse.name")) {
        f->path = f->name = true;
        return pax_string(r, value, len, r->path);
    }
    if (is_key(name, n, "linkpath")) {
        f->link = true;
        return pax_string(r, value, len, r->link);
    }
    if (is_key(name, n, "mtime"))
        return pax_time(value, len, &e->mtime) ? 0 : bad(r, "malformed time");
    bool uid = is_key(name, n, "uid");
    if (uid || is_key(name, n, "gid")) {
        if (!decimal(value, len, &v) || v >= UINT32_MAX)
            return bad(r, "malformed owner");
        *(uid ? &e->uid : &e->gid) = (uint32_t)v;
        return 0;
    }
    int64_t *to = is_key(name, n, "size")                  ? &f->size
                  : is_key(name, n, "GNU.sparse.realsize") ? &f->realsize
                  : is_key(name, n, "GNU.sparse.major")    ? &f->major
                  : is_key(name, n, "GNU.sparse.minor")    ? &f->minor
                                                           : NULL;
    if (to != NULL)
        return decimal(value, len, to) ? 0 : bad(r, "malformed size");
    if (is_key(name, n, "GNU.sparse.map") || is_key(name, n, "GNU.sparse.numblocks")) {
        r->problem = "an old format of sparse files";
        return -EOPNOTSUPP;
    }
    return 0;
}

static int pax_apply(struct tar_reader *r, struct tar_entry *e, struct pax_facts *f)
{
    const char *name, *value;
    size_t at = 0, n, len;

    while (at < r->pax_len) {
        if (!pax_record(r, &at, &name, &n, &value, &len))
            return bad(r, "malformed attributes");
        int k = pax_apply_one(r, e, f, name, n, value, len);
        if (k < 0)
            return k;
    }
    return 0;
}

bool tar_xattr(const struct tar_reader *r, size_t *at, const char **ret_name, size_t *ret_name_len,
               const char **ret_value, size_t *ret_len)
{
    static const char prefix[] = "SCHILY.xattr.";
    const char *name;
    size_t n;

    while (*at < r->pax_len && pax_record(r, at, &name, &n, ret_value, ret_len)) {
        if (n <= sizeof prefix - 1 || memcmp(name, prefix, sizeof prefix - 1) != 0)
            continue;
        *ret_name = name + sizeof prefix - 1;
        *ret_name_len = n - (sizeof prefix - 1);
        return true;
    }
    return false;
}

/* A decimal line of the sparse map, which fills whole blocks at the start of the content. */
struct map_reader {
    char block[TAR_BLOCK];
    size_t at, len;
};

static int map_number(struct tar_reader *r, struct map_reader *m, int64_t *ret)
{
    int64_t v = 0;
    bool any = false;

    for (;;) {
        if (m->at == m->len) {
            if (r->left < TAR_BLOCK)
                return bad(r, "malformed sparse map");
            if (read_exactly(r, m->block, TAR_BLOCK) <= 0)
                return -ENODATA;
            r->left -= TAR_BLOCK;
            m->at = 0;
            m->len = TAR_BLOCK;
        }
        char c = m->block[m->at++];
        if (c == '\n' && any) {
            *ret = v;
            return 0;
        }
        if (c < '0' || c > '9' || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, c - '0', &v))
            return bad(r, "malformed sparse map");
        any = true;
    }
}

static int read_map(struct tar_reader *r, struct tar_entry *e)
{
    struct map_reader m = {.len = 0};
    int64_t count, end = 0, total = 0;
    int k = map_number(r, &m, &count);

    if (k < 0)
        return k;
    if (count > TAR_SEGMENTS_MAX)
        return bad(r, "too many pieces in a sparse file");
    for (int64_t i = 0; i < count; i++) {
        struct tar_segment *s = &r->segments[i];
        k = map_number(r, &m, &s->offset);
        if (k == 0)
            k = map_number(r, &m, &s->length);
        if (k < 0)
            return k;
        if (s->offset < end || s->length > e->size || s->offset > e->size - s->length)
            return bad(r, "malformed sparse map");
        end = s->offset + s->length;
        total += s->length;
    }
    if (total != r->left)
        return bad(r, "malformed sparse map");
    r->nsegments = (size_t)count;
    return 0;
}

static int type_of(struct tar_reader *r, const unsigned char *h, enum tar_type *ret)
{
    static const enum tar_type types[] = {TAR_FILE, TAR_HARDLINK, TAR_SYMLINK, TAR_CHAR,
                                          TAR_BLOCK_DEVICE, TAR_DIRECTORY, TAR_FIFO, TAR_FILE};
    unsigned char t = h[156];

    if (t == '\0')
        t = '0';
    if (t < '0' || t > '7') {
        r->problem = t == 'S' ? "an old format of sparse files" : "an unknown kind of entry";
        return -EOPNOTSUPP;
    }
    *ret = types[t - '0'];
    return 0;
}

static int entry_from_header(struct tar_reader *r, const unsigned char *h, struct tar_entry *e, int64_t *size)
{
    int64_t mode, mtime, major = 0, minor = 0;

    int k = type_of(r, h, &e->type);
    if (k < 0)
        return k;
    if (!number(h + 100, 8, &mode) || !id_number(h + 108, &e->uid) || !id_number(h + 116, &e->gid) ||
        !number(h + 124, 12, size) || *size < 0 || !number(h + 136, 12, &mtime))
        return bad(r, "malformed header");
    if ((e->type == TAR_CHAR || e->type == TAR_BLOCK_DEVICE) &&
        (!number(h + 329, 8, &major) || !number(h + 337, 8, &minor) || major < 0 || minor < 0))
        return bad(r, "malformed header");
    e->mode = (uint32_t)mode & 07777;
    e->mtime = (struct timespec){.tv_sec = (time_t)mtime};
    e->major = (uint32_t)major;
    e->minor = (uint32_t)minor;
    return 0;
}

/* ustar splits long names; GNU uses the same bytes for something else. */
static void names_from_header(struct tar_reader *r, const unsigned char *h, bool path, bool link)
{
    if (!path) {
        size_t n = 0;
        if (memcmp(h + 257, "ustar\0", 6) == 0 && h[345] != 0) {
            field_copy(r->path, h + 345, 155);
            n = strlen(r->path);
            r->path[n++] = '/';
        }
        field_copy(r->path + n, h, 100);
    }
    if (!link)
        field_copy(r->link, h + 157, 100);
}

static int finish(struct tar_reader *r, const unsigned char *h, struct tar_entry *e, bool long_path,
                  bool long_link)
{
    struct pax_facts f = {.size = -1, .realsize = -1};
    int64_t size;

    int k = entry_from_header(r, h, e, &size);
    if (k < 0)
        return k;
    names_from_header(r, h, long_path, long_link);
    k = pax_apply(r, e, &f);
    if (k < 0)
        return k;
    if (f.size >= 0)
        size = f.size;
    if (size > INT64_MAX - TAR_BLOCK)
        return bad(r, "malformed size");
    size_t n = strlen(r->path);
    if (n == 0)
        return bad(r, "an entry without a name");
    if (e->type == TAR_FILE && r->path[n - 1] == '/')
        e->type = TAR_DIRECTORY;            /* as before POSIX */
    if (e->type != TAR_FILE)
        size = 0;
    if (e->type != TAR_HARDLINK && e->type != TAR_SYMLINK)
        r->link[0] = '\0';
    else if (r->link[0] == '\0')
        return bad(r, "a link without a target");
    e->path = r->path;
    e->link = r->link;
    e->size = size;
    e->sparse = f.major == 1 && f.minor == 0 && f.realsize >= 0 && e->type == TAR_FILE;
    r->left = size;
    r->padding = padding_of(size);
    r->nsegments = 0;
    if (!e->sparse)
        return 1;
    e->size = f.realsize;
    k = read_map(r, e);
    return k < 0 ? k : 1;
}

static int first_block_problem(struct tar_reader *r, const unsigned char *h)
{
    if ((h[0] == 0x1f && h[1] == 0x8b) || memcmp(h, "\x28\xb5\x2f\xfd", 4) == 0 ||
        memcmp(h, "\xfd" "7zXZ", 5) == 0 || memcmp(h, "BZh", 3) == 0) {
        r->problem = "the archive is compressed";
        return -EOPNOTSUPP;
    }
    return bad(r, "not a tar archive, or a damaged one");
}

int tar_next(struct tar_reader *r, struct tar_entry *ret)
{
    unsigned char h[TAR_BLOCK];
    bool long_path = false, long_link = false;
    struct tar_entry e = {0};
    int64_t size;
    int k = skip(r);

    if (k < 0)
        return k;
    r->pax_len = 0;
    for (;;) {
        k = read_exactly(r, h, sizeof h);
        if (k <= 0)
            return k == 0 ? -ENODATA : k;
        if (all_zero(h))
            return 0;
        if (!checksum_ok(h))
            return first_block_problem(r, h);
        char type = (char)h[156];
        if (type != 'x' && type != 'g' && type != 'L' && type != 'K') {
            k = finish(r, h, &e, long_path, long_link);
            if (k > 0)
                *ret = e;
            return k;
        }
        if (!number(h + 124, 12, &size))
            return bad(r, "malformed header");
        char *to = type == 'L' ? r->path : type == 'K' ? r->link : r->pax;
        k = read_extra(r, size, to);
        if (k < 0)
            return k;
        if (type == 'x')
            r->pax_len = (size_t)size;
        else if (type == 'g')
            r->pax_len = 0;                 /* of the whole archive: comments, in practice */
        else if (type == 'L')
            long_path = true;
        else
            long_link = true;
    }
}

ssize_t tar_content(struct tar_reader *r, void *p, size_t n)
{
    if ((int64_t)n > r->left)
        n = (size_t)r->left;
    if (n == 0)
        return 0;
    ssize_t k = r->read(r->context, p, n);
    if (k == 0)
        return -ENODATA;
    if (k > 0)
        r->left -= k;
    return k;
}
