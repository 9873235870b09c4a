/*
 * mounts_make.c - layers that stand for the mounts of a RUN
 *
 * One copy of the image role for each, on top of the stage and of the mounts before it. They are garbage once the build is over.
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/run.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/image.h"
#include "ipc/image_proto.h"

#define MAKE_TIMEOUT_MS (30ULL * 60 * 1000)
#define FOLD_TIMEOUT_MS (30ULL * 60 * 1000)

static void make_next(struct run *r);

json_t *mounts_layers(const struct run *r)
{
    json_t *list = json_array();

    for (size_t i = r->nmounts; i > 0; i--)
        if (r->mounts[i - 1].layer[0] != '\0')
            (void)json_array_append_new(list, json_string(r->mounts[i - 1].layer));
    (void)json_array_extend(list, build_stage(r->build)->layers);
    return list;
}

static void fail(struct run *r, const struct err *e)
{
    r->failure = *e;
    run_end(r);
}

static void on_made(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct run *r = ctx;
    struct mount *m = &r->mounts[r->at];
    const Quicksand__Node__Layer *l = (const Quicksand__Node__Layer *)reply;
    struct err local;

    r->build->call = NULL;
    if (e != NULL && m->type == MOUNT_BIND && e->code == ERR_NOT_FOUND) {
        (void)df_fail(r->in, &local, "--mount: %.180s", e->message);
        local.code = ERR_NOT_FOUND;
        e = &local;
    }
    if (e != NULL) {
        fail(r, e);
        return;
    }
    (void)snprintf(m->layer, sizeof m->layer, "%s", l->layer);
    m->existing = l->existing;
    if (m->type == MOUNT_SECRET)
        (void)snprintf(m->path, sizeof m->path, "%s%s%s", l->path, l->path[0] != '\0' ? "/" : "", strrchr(m->target, '/') + 1);
    else
        (void)snprintf(m->path, sizeof m->path, "%s", l->path);
    if (m->layer[0] != '\0')
        build_keep_layer(r->build, m->layer, l->bytes, l->files);
    m->is_made = true;
    make_next(r);
}

/* What is to be there at the start: layers, top first, and a path in them; NULL = nothing. The caller's. */
static int find_content(struct run *r, struct mount *m, json_t **ret, bool *ret_context, struct err *e)
{
    bool found = false;

    *ret = NULL;
    *ret_context = false;
    if (m->type == MOUNT_CACHE) {
        auto_free char *key = mem_printf(IMAGE_CACHE_KEY "%s", m->id);
        if (store_step_get(core_store(r->build->core), key, clock_wall_us(), &found, m->began, e) < 0)
            return -1;
        if (m->is_dropped)
            m->began[0] = '\0';         /* somebody has it who does not share it */
        if (m->began[0] != '\0') {
            *ret = json_pack("[s]", m->began);
            free(m->source);
            m->source = mem_strdup("/");
            return 0;
        }
    }
    if (m->type == MOUNT_BIND || (m->type == MOUNT_CACHE && m->from != NULL))
        return build_find_source(r->build, r->in, m->from, ret, ret_context, e);
    return 0;
}

static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == path ? mem_strdup("/") : mem_strndup(path, (size_t)(slash - path));
}

static void send(struct run *r, struct mount *m)
{
    Quicksand__Node__ImageCopyRequest rq = QUICKSAND__NODE__IMAGE_COPY_REQUEST__INIT;
    auto_json *content = NULL, *onto = mounts_layers(r);
    auto_free char *dest = m->type == MOUNT_SECRET ? parent_of(m->target) : mem_strdup(m->target);
    auto_free char *owner = mem_printf("%lu:%lu", m->uid, m->gid);
    bool is_context = false;
    struct err e = {0};

    if (find_content(r, m, &content, &is_context, &e) < 0) {
        fail(r, &e);
        return;
    }
    rq.dest = dest;
    rq.has_replace = rq.has_keep_owner = rq.has_is_context = true;
    rq.replace = m->type != MOUNT_SECRET;
    rq.is_context = is_context;
    rq.has_keep_ignored = true;
    rq.keep_ignored = r->build->whole_context;
    rq.keep_owner = !is_context;
    if (content != NULL) {
        rq.items = &m->source;
        rq.n_items = 1;
    }
    if (m->type == MOUNT_CACHE || m->type == MOUNT_TMPFS) {
        rq.has_mode = true;
        rq.mode = m->type == MOUNT_TMPFS ? 01777 : m->mode;
        rq.owner = owner;
    }
    build_copy_call(r->build, &rq, content, onto, on_made, r);
}

static void on_lock(struct run *r)
{
    make_next(r);
}

static bool is_to_do(const struct mount *m, bool binds)
{
    if (m->is_made || (m->type == MOUNT_BIND) != binds)
        return false;
    return m->type != MOUNT_SECRET || (m->target != NULL && m->secret != NULL);
}

static void make_next(struct run *r)
{
    bool binds = r->build->key == NULL;
    struct err e;

    if (r->is_cancelled) {
        (void)err_set(&e, ERR_CONFLICT, "it was cancelled");
        fail(r, &e);
        return;
    }
    for (r->at = 0; r->at < r->nmounts && !is_to_do(&r->mounts[r->at], binds);)
        r->at++;
    if (r->at == r->nmounts) {
        r->then(r);
        return;
    }
    struct mount *m = &r->mounts[r->at];
    if (m->type == MOUNT_CACHE && !m->is_held && !m->is_dropped && !cache_lock(r, m, on_lock))
        return;
    send(r, m);
}

void mounts_make(struct run *r, void (*then)(struct run *r))
{
    r->then = then;
    make_next(r);
}

/* --- folding -------------------------------------------------------------------------------------------------------------- */

/* Directories that were made for a mount: parts of its path between what was there and the target. */
static void add_stubs(const struct mount *m, char **list, size_t *n, size_t most)
{
    for (size_t i = m->existing + 1; m->path[i - 1] != '\0' && m->path[i] != '\0' && *n < most; i++)
        if (m->path[i] == '/')
            list[(*n)++] = mem_strndup(m->path, i);
}

void mounts_fold(struct run *r, const struct mount *only, node_reply_fn fn)
{
    /* Ours, and what the kernel has there. */
    static const char *const always[] = {"__modal", "proc", "sys", "dev"};
    Quicksand__Node__ImageFoldRequest rq = QUICKSAND__NODE__IMAGE_FOLD_REQUEST__INIT;
    char *exclude[array_len(always) + RUN_MOUNTS_MAX], *stubs[IMAGE_EXCLUDE_MAX];
    size_t nexclude = 0, nstubs = 0;

    if (only == NULL) {
        for (size_t i = 0; i < array_len(always); i++)
            exclude[nexclude++] = (char *)(uintptr_t)always[i];
        for (size_t i = 0; i < r->nmounts; i++)
            if (r->mounts[i].is_made) {
                exclude[nexclude++] = r->mounts[i].path;
                add_stubs(&r->mounts[i], stubs, &nstubs, array_len(stubs));
            }
    }
    rq.sandbox_id = r->sandbox;
    rq.exclude = exclude;
    rq.n_exclude = nexclude;
    rq.stubs = stubs;
    rq.n_stubs = nstubs;
    rq.only = only != NULL ? (char *)(uintptr_t)only->path : NULL;
    rq.has_max_bytes = rq.has_max_files = true;
    rq.max_bytes = IMAGE_BYTES_MAX;
    rq.max_files = IMAGE_FILES_MAX;
    r->build->call = node_unary(r->build->core, "ImageFold", &rq.base, &quicksand__node__layer__descriptor, FOLD_TIMEOUT_MS,
                                true, fn, r);
    for (size_t i = 0; i < nstubs; i++)
        free(stubs[i]);
}
