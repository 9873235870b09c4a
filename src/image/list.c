/*
 * list.c - which layers lie here
 *
 * Control asks from time to time and makes garbage of those that it knows nothing of: an import that failed at its third layer
 * leaves two, and a daemon that is killed between a layer and its row leaves one.
 */
#include "image/list.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/mem.h"
#include "image/confine.h"
#include "image/layer.h"
#include "image/names.h"

#define NAME_LEN 64

static bool is_layer(const char *name)
{
    return strlen(name) == NAME_LEN && strspn(name, "0123456789abcdef") == NAME_LEN;
}

/* Its sum was written when it came. Without one the last change of the directory's inode counts: its move to this place, or
 * later. */
static bool came_before(const struct job *job, const char *name, int64_t before)
{
    char sum[96];
    struct stat st;

    (void)snprintf(sum, sizeof sum, SUMS "/%s", name);
    if (fstatat(job->layers, sum, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return st.st_mtime <= before;
    return fstatat(job->layers, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && st.st_ctime <= before;
}

static void add(const struct job *job, struct image_layers *m, const char *name)
{
    (void)snprintf(m->layers[m->nlayers].layer, sizeof m->layers[0].layer, "%s", name);
    layer_size_read(job, name, &m->layers[m->nlayers].bytes, &m->layers[m->nlayers].files);
    m->nlayers++;
}

int list_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e)
{
    auto_free struct image_layers *found = mem_zalloc(sizeof *found);
    auto_free uint8_t *out = mem_alloc(LIMIT_CHANNEL_INLINE);
    struct image_list request;
    char **names;
    size_t n;

    if (m->nfds != 0 || image_list_decode(&request, m->data, m->len) < 0)
        return err_set(e, ERR_MALFORMED, "not a request of this version");
    if (confine_unpacker(e) < 0)
        return -1;
    int r = names_read(job->layers, &names, &n);
    if (r < 0)
        return err_sys(e, -r, "list the layers");
    int64_t now = time(NULL);
    int64_t before = request.age_s < (uint64_t)now ? now - (int64_t)request.age_s : 0;
    for (size_t i = 0; i < n && found->nlayers < IMAGE_LAYERS_MAX; i++)
        if (is_layer(names[i]) && strcmp(names[i], request.after) > 0 && came_before(job, names[i], before))
            add(job, found, names[i]);
    names_free(names, n);
    job_send(job->conn, IMAGE_LAYERS, out, image_layers_encode(found, out, LIMIT_CHANNEL_INLINE));
    ret->files = found->nlayers;
    return 0;
}
