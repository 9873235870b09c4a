/*
 * defaults.c - what execs of a sandbox inherit, kept in data_dir/node/<id>
 *
 * A file is four bytes "QSD1" and a Defaults message of node.proto. Files are read when they are
 * first needed; CACHE_MAX of them are remembered.
 */
#include "node/defaults.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "sys/fd.h"

#define MAGIC "QSD1"
#define FILE_MAX (LIMIT_ENV_BYTES + 4 * LIMIT_ENVC * 4 + LIMIT_PATH + LIMIT_ARGV_BYTES + 4 * LIMIT_ARGC + 1024)
#define CACHE_MAX 4096

struct defaults_store {
    int fd;                     /* borrowed */
    struct map cache;           /* id -> Defaults, owned */
};

static void clear_cache(struct defaults_store *s)
{
    struct map_iter it = MAP_ITER;
    void *d;

    while (map_next(&s->cache, &it, NULL, &d))
        quicksand__node__defaults__free_unpacked(d, NULL);
    map_done(&s->cache);
    map_init(&s->cache);
}

struct defaults_store *defaults_store_new(int state_fd)
{
    struct defaults_store *s = mem_zalloc(sizeof *s);

    s->fd = state_fd;
    map_init(&s->cache);
    return s;
}

void defaults_store_free(struct defaults_store *s)
{
    clear_cache(s);
    map_done(&s->cache);
    free(s);
}

static void forget(struct defaults_store *s, const char *sandbox)
{
    Quicksand__Node__Defaults *d = map_del(&s->cache, sandbox);

    if (d != NULL)
        quicksand__node__defaults__free_unpacked(d, NULL);
}

int defaults_save(struct defaults_store *s, const char *sandbox, const Quicksand__Node__Defaults *d,
                  struct err *e)
{
    size_t n = quicksand__node__defaults__get_packed_size(d) + strlen(MAGIC);
    auto_free uint8_t *bytes = mem_alloc(n);

    forget(s, sandbox);
    memcpy(bytes, MAGIC, strlen(MAGIC));
    (void)quicksand__node__defaults__pack(d, bytes + strlen(MAGIC));
    int r = fd_replace_file(s->fd, sandbox, bytes, n, 0600, false);
    if (r < 0)
        return err_sys(e, -r, "keep the defaults of %s", sandbox);
    return 0;
}

static Quicksand__Node__Defaults *load(struct defaults_store *s, const char *sandbox)
{
    auto_free uint8_t *bytes = mem_alloc(FILE_MAX);
    auto_close int fd = openat(s->fd, sandbox, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    size_t magic = strlen(MAGIC);

    if (fd < 0)
        return NULL;
    ssize_t n = fd_read_all(fd, bytes, FILE_MAX);
    Quicksand__Node__Defaults *d = NULL;
    if (n >= (ssize_t)magic && memcmp(bytes, MAGIC, magic) == 0)
        d = quicksand__node__defaults__unpack(NULL, (size_t)n - magic, bytes + magic);
    if (d == NULL)
        log_error("defaults-unreadable", "sandbox=%s", sandbox);
    return d;
}

const Quicksand__Node__Defaults *defaults_get(struct defaults_store *s, const char *sandbox)
{
    Quicksand__Node__Defaults *d = map_get(&s->cache, sandbox);

    if (d != NULL)
        return d;
    d = load(s, sandbox);
    if (d == NULL)
        return NULL;
    if (s->cache.count >= CACHE_MAX)
        clear_cache(s);
    (void)map_put(&s->cache, sandbox, d);
    return d;
}

void defaults_remove(struct defaults_store *s, const char *sandbox)
{
    forget(s, sandbox);
    if (unlinkat(s->fd, sandbox, 0) < 0 && errno != ENOENT)
        log_warn("defaults-not-removed", "sandbox=%s error=%s", sandbox, strerror(errno));
}
