/*
 * mounted.c - images with a client's files laid over them
 *
 * Files that are not copied into an image come with the creation of a sandbox. They become a layer on top of the image's, by the
 * builder, and the result is found again by the image and the mounts it was made of. It is forgotten when no sandbox used it
 * for a while.
 */
#include <stdio.h>
#include <string.h>

#include "api/modal/images.h"
#include "api/shared/build/build.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/image.h"

#define PREFIX "mounted:"
#define KEEP_S (7 * 24 * 3600LL)
#define SWEEP_MOST 50
#define WAIT_MS (60 * 1000)             /* of one question whether it is done */

/* All files, each where its path says. */
static const char dockerfile[] = "FROM base\nCOPY . /\n";

struct mounted {
    struct modal *m;
    char base[ID_SIZE];
    struct definition_row row;
    mounted_fn fn;
    void *ctx;
};

static void finish(struct mounted *x, const struct err *e)
{
    mounted_fn fn = x->fn;
    void *ctx = x->ctx;
    char image[ID_SIZE];

    memcpy(image, x->row.image, sizeof image);
    free(x);
    fn(ctx, e == NULL ? image : NULL, e);
}

static void on_turn(void *arg);

static void on_news(void *ctx, const struct operation_view *view, const struct err *e)
{
    struct mounted *x = ctx;
    struct err local;

    if (e != NULL) {
        finish(x, e);
    } else if (view->row.state == OPERATION_RUNNING) {
        loop_defer(core_loop(x->m->core), on_turn, x);
    } else if (view->row.state == OPERATION_SUCCEEDED) {
        finish(x, NULL);
    } else {
        (void)err_set(&local, ERR_CONFLICT,
                      "the files of the mounts could not be laid over the image: %s",
                      m_text(view->row.error));
        finish(x, &local);
    }
}

static void on_turn(void *arg)
{
    struct mounted *x = arg;

    (void)operation_get(x->m->core, x->row.operation, -1, WAIT_MS, on_news, x);
}

static void on_context(void *ctx, const char *layer, const struct err *cause)
{
    struct mounted *x = ctx;
    auto_json *bases = json_pack("{s:s}", "base", x->base);
    struct err e = {0};
    const struct build_spec spec = {
        .kind = "image.mount",
        .dockerfile = dockerfile,
        .dockerfile_len = sizeof dockerfile - 1,
        .context = layer,
        .image = x->row.image,
        .bases = bases,
        .whole_context = true,
    };

    if (cause != NULL) {
        finish(x, cause);
        return;
    }
    id_make(x->row.image, "im-");
    x->row.created_us = clock_wall_us();
    if (build_begin(x->m->core, &spec, x->row.operation, &e) < 0 || store_definition_put(core_store(x->m->core), &x->row, &e) < 0)
        finish(x, &e);
    else
        on_turn(x);
}

static void hash_of(const char *image, char *const *mounts, size_t n, char *ret, size_t size)
{
    char hex[SHA256_HEX_SIZE];
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, BUILD_VERSION, sizeof BUILD_VERSION);
    sha256_add(&s, image, strlen(image) + 1);
    for (size_t i = 0; i < n; i++)
        sha256_add(&s, mounts[i], strlen(mounts[i]) + 1);
    sha256_end(&s, sum);
    sha256_hex(sum, hex);
    (void)snprintf(ret, size, PREFIX "%.62s", hex);
}

void mounted_image(struct modal *m, const char *image, char *const *mounts, size_t n, mounted_fn fn, void *ctx)
{
    struct mounted *x = mem_zalloc(sizeof *x);
    struct definition_row known = {{0}};
    auto_image_row row = {0}, base = {0};
    auto_operation_row operation = {0};
    struct err e = {0};

    x->m = m;
    x->fn = fn;
    x->ctx = ctx;
    hash_of(image, mounts, n, x->row.hash, sizeof x->row.hash);
    if (image_get(m->core, image, &base, &e) < 0) {
        (void)snprintf(e.param, sizeof e.param, "image");
        finish(x, &e);
        return;
    }
    memcpy(x->base, base.id, sizeof x->base);
    if (store_definition_get(core_store(m->core), x->row.hash, NULL, &known, &e) < 0) {
        finish(x, &e);
        return;
    }
    if (known.image[0] != '\0' && store_image_get(core_store(m->core), known.image, &row, &e) == 0) {
        x->row = known;
        finish(x, NULL);
    } else if (known.image[0] != '\0' && store_operation_get(core_store(m->core), known.operation, &operation, &e) == 0 &&
               operation.state == OPERATION_RUNNING) {
        x->row = known;
        on_turn(x);
    } else {
        mounts_make_context(m, mounts, n, NULL, 0, on_context, x);
    }
}

/* --- the sweep ------------------------------------------------------------------------------------------- */

struct old {
    char image[SWEEP_MOST][ID_SIZE];
    size_t n;
};

static void add_old(void *ctx, const char *image)
{
    struct old *o = ctx;

    if (o->n < SWEEP_MOST)
        (void)snprintf(o->image[o->n++], ID_SIZE, "%s", image);
}

void mounted_sweep(struct modal *m)
{
    struct store *s = core_store(m->core);
    int64_t before_us = clock_wall_us() - KEEP_S * 1000000;
    struct old o = {.n = 0};
    struct err e = {0};

    if (store_definition_old(s, PREFIX, before_us, SWEEP_MOST, add_old, &o, &e) < 0 ||
        store_definition_expire(s, before_us, &e) < 0)
        log_warn("mounted.sweep", "cause=\"%s\"", e.message);
    for (size_t i = 0; i < o.n; i++) {
        if (image_remove(m->core, o.image[i], &e) < 0 && e.code != ERR_NOT_FOUND)
            continue;                   /* in use: later */
        if (store_definition_remove(s, o.image[i], &e) < 0)
            log_warn("mounted.sweep", "cause=\"%s\"", e.message);
    }
}
