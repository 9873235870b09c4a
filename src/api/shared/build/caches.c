/*
 * caches.c - what --mount=type=cache keeps from build to build
 *
 * A cache is one layer with its files at the root, named by a row of build_steps. A RUN works on a copy of it; what it
 * has changed is laid over the cache as it is then, so that of two that share it none loses the other's files. Rows that
 * nobody used for long go with those of steps.
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/run.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/image.h"

/* --- locks ---------------------------------------------------------------------------------------------------------------- */

/* Who uses which cache, and who waits for one: the builds of this process are all there are. */
static struct use {
    struct run *run;
    struct mount *mount;
    void (*fn)(struct run *r);          /* waiting; NULL = in use */
    struct use *next;
} *uses;

/* Whether the two may have the cache at once; private ones never wait, they get one of their own. */
static bool is_free(const struct mount *m, const struct run *r)
{
    for (const struct use *u = uses; u != NULL; u = u->next)
        if (u->fn == NULL && u->run->build->core == r->build->core && strcmp(u->mount->id, m->id) == 0 &&
            (m->sharing != SHARING_SHARED || u->mount->sharing != SHARING_SHARED))
            return false;
    return true;
}

static void add_use(struct run *r, struct mount *m, void (*fn)(struct run *r))
{
    struct use *u = mem_zalloc(sizeof *u), **last = &uses;

    *u = (struct use){.run = r, .mount = m, .fn = fn};
    while (*last != NULL)
        last = &(*last)->next;
    *last = u;
}

bool cache_lock(struct run *r, struct mount *m, void (*fn)(struct run *r))
{
    /* One step's own two mounts of a cache do not wait for each other. */
    for (size_t i = 0; i < r->nmounts; i++)
        if (&r->mounts[i] != m && r->mounts[i].is_held && strcmp(r->mounts[i].id, m->id) == 0)
            m->is_dropped = true;
    if (!m->is_dropped && !is_free(m, r)) {
        if (m->sharing != SHARING_PRIVATE) {
            operation_log(r->build->operation, "(waiting for the cache %s)", m->id);
            add_use(r, m, fn);
            return false;
        }
        m->is_dropped = true;
    }
    if (!m->is_dropped) {
        m->is_held = true;
        add_use(r, m, NULL);
    }
    return true;
}

bool cache_stop_waiting(struct run *r)
{
    for (struct use **at = &uses; *at != NULL; at = &(*at)->next) {
        struct use *u = *at;
        if (u->run != r || u->fn == NULL)
            continue;
        *at = u->next;
        free(u);
        return true;
    }
    return false;
}

static void wake(void)
{
    for (bool again = true; again;) {
        again = false;
        for (struct use *u = uses; u != NULL; u = u->next) {
            if (u->fn == NULL || !is_free(u->mount, u->run))
                continue;
            void (*fn)(struct run *r) = u->fn;
            u->fn = NULL;
            u->mount->is_held = true;
            again = true;
            fn(u->run);                 /* may change the list: from its start again */
            break;
        }
    }
}

void cache_unlock_all(struct run *r)
{
    bool any = false;

    for (struct use **at = &uses; *at != NULL;) {
        struct use *u = *at;
        if (u->run != r) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        free(u);
        any = true;
    }
    for (size_t i = 0; i < r->nmounts; i++)
        r->mounts[i].is_held = false;
    if (any)
        wake();
}

/* --- keeping -------------------------------------------------------------------------------------------------------------- */

static void keep_next(struct run *r);

/* The step is done all the same: a cache is a cache. */
static void give_up(struct run *r, const struct err *e)
{
    operation_log(r->build->operation, "(the cache %s stays as it was: %.150s)", r->mounts[r->at].id, e->message);
    r->at++;
    keep_next(r);
}

/* The layer that the cache is now, "" = none. */
static int get(struct run *r, char ret[72], struct err *e)
{
    auto_free char *key = mem_printf(IMAGE_CACHE_KEY "%s", r->mounts[r->at].id);
    bool found = false;

    ret[0] = '\0';
    return store_step_get(core_store(r->build->core), key, clock_wall_us(), &found, ret, e);
}

static int put(struct run *r, const char *layer, struct err *e)
{
    struct store *s = core_store(r->build->core);
    auto_free char *key = mem_printf(IMAGE_CACHE_KEY "%s", r->mounts[r->at].id);
    struct err ignored;

    if (layer[0] == '\0' ? store_step_remove(s, key, e) < 0 : store_step_put(s, key, layer, clock_wall_us(), e) < 0)
        return -1;
    if (r->onto[0] != '\0' && strcmp(r->onto, layer) != 0)
        (void)store_layer_release(s, r->onto, &ignored);
    return 0;
}

static void move(struct run *r, const char *layer);

static void on_merged(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct run *r = ctx;
    const Quicksand__Node__Layer *l = (const Quicksand__Node__Layer *)reply;
    /* The target itself was removed: the cache is empty. */
    const char *layer = e == NULL ? l->layer : "";
    char now[72];
    struct err local;

    r->build->call = NULL;
    if (e != NULL && e->code != ERR_NOT_FOUND) {
        give_up(r, e);
        return;
    }
    if (layer[0] != '\0')
        build_keep_layer(r->build, layer, l->bytes, l->files);
    if (get(r, now, &local) < 0) {
        give_up(r, &local);
        return;
    }
    if (strcmp(now, r->onto) != 0 && now[0] != '\0') {
        move(r, now);
        return;
    }
    if (put(r, layer, &local) < 0) {
        give_up(r, &local);
        return;
    }
    r->at++;
    keep_next(r);
}

/* The files of the cache, out of layers that have them at the target. */
static void merge(struct run *r, const char *changes, const char *below)
{
    Quicksand__Node__ImageCopyRequest rq = QUICKSAND__NODE__IMAGE_COPY_REQUEST__INIT;
    struct mount *m = &r->mounts[r->at];
    auto_json *source = json_pack("[s, s]", changes, below), *none = json_array();
    char *item = m->path;

    rq.dest = (char *)(uintptr_t) "/";
    rq.items = &item;
    rq.n_items = 1;
    rq.has_keep_owner = rq.has_dest_is_dir = true;
    rq.keep_owner = rq.dest_is_dir = true;
    build_copy_call(r->build, &rq, source, none, on_merged, r);
}

static void on_moved(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct run *r = ctx;
    const Quicksand__Node__Layer *l = (const Quicksand__Node__Layer *)reply;

    r->build->call = NULL;
    if (e != NULL) {
        give_up(r, e);
        return;
    }
    build_keep_layer(r->build, l->layer, l->bytes, l->files);
    merge(r, r->changes, l->layer);
}

/* Another build has changed the cache meanwhile: its files go below ours, at our target. */
static void move(struct run *r, const char *layer)
{
    Quicksand__Node__ImageCopyRequest rq = QUICKSAND__NODE__IMAGE_COPY_REQUEST__INIT;
    struct mount *m = &r->mounts[r->at];
    auto_json *source = json_pack("[s]", layer), *none = json_array();
    auto_free char *dest = mem_printf("/%s", m->path);
    char *item = (char *)(uintptr_t) "/";

    (void)snprintf(r->onto, sizeof r->onto, "%s", layer);
    rq.dest = dest;
    rq.items = &item;
    rq.n_items = 1;
    rq.has_keep_owner = rq.has_replace = true;
    rq.keep_owner = rq.replace = true;
    build_copy_call(r->build, &rq, source, none, on_moved, r);
}

static void on_changes(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct run *r = ctx;
    struct mount *m = &r->mounts[r->at];
    const Quicksand__Node__Layer *l = (const Quicksand__Node__Layer *)reply;
    char now[72] = "";
    struct err local;

    r->build->call = NULL;
    if (e == NULL && get(r, now, &local) < 0)
        e = &local;
    if (e != NULL) {
        give_up(r, e);
        return;
    }
    if (l->layer[0] == '\0') {          /* nothing was written there */
        r->at++;
        keep_next(r);
        return;
    }
    (void)snprintf(r->changes, sizeof r->changes, "%s", l->layer);
    build_keep_layer(r->build, l->layer, l->bytes, l->files);
    if (now[0] != '\0' && strcmp(now, m->began) != 0) {
        move(r, now);
        return;
    }
    (void)snprintf(r->onto, sizeof r->onto, "%s", now);
    merge(r, r->changes, m->layer);
}

static void keep_next(struct run *r)
{
    while (r->at < r->nmounts) {
        const struct mount *m = &r->mounts[r->at];
        if (m->type == MOUNT_CACHE && m->is_held && !m->is_read_only && !r->is_cancelled) {
            mounts_fold(r, m, on_changes);
            return;
        }
        r->at++;
    }
    r->then(r);
}

void caches_keep(struct run *r, void (*then)(struct run *r))
{
    r->then = then;
    r->at = 0;
    keep_next(r);
}
