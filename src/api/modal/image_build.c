/*
 * image_build.c - definitions of images: found, pulled or built
 *
 * A definition that comes down to an image that is here is answered with its id at once. Any other is a build, an operation;
 * the id that its image will have is the answer, and ImageJoinStreaming follows it. The same definition is the same image as
 * long as that is there. What fails is a failed build, not an error of the call: that is where clients show it.
 */
#include <stdio.h>
#include <string.h>

#include "api/modal/image_def.h"
#include "api/modal/images.h"
#include "api/shared/build/build.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/dockerfile/dockerfile.h"
#include "core/image.h"
#include "core/image_pull.h"
#include "net/digest.h"

#define STATUS(name) MODAL__CLIENT__GENERIC_RESULT__GENERIC_STATUS__GENERIC_STATUS_##name

/* --- answers ---------------------------------------------------------------------------------- */

static void answer_image(struct mcall *c, const struct image_row *row)
{
    M(ImageGetOrCreateResponse) rs = MODAL__CLIENT__IMAGE_GET_OR_CREATE_RESPONSE__INIT;
    M(GenericResult) result;
    M(ImageMetadata) meta;

    modal__client__generic_result__init(&result);
    result.has_status = true;
    result.status = STATUS(SUCCESS);
    images_fill_metadata(row, &meta);
    rs.metadata = &meta;
    rs.image_id = STR(row->id);
    rs.result = &result;
    m_reply(c, &rs.base);
}

static void answer_failure(struct mcall *c, const struct err *e)
{
    M(ImageGetOrCreateResponse) rs = MODAL__CLIENT__IMAGE_GET_OR_CREATE_RESPONSE__INIT;
    M(GenericResult) result;
    char id[ID_SIZE];

    modal__client__generic_result__init(&result);
    result.has_status = true;
    result.status = STATUS(FAILURE);
    result.exception = STR(e->message);
    id_make(id, "im-");
    rs.image_id = id;
    rs.result = &result;
    m_reply(c, &rs.base);
}

static void answer_pending(struct mcall *c, const char *image)
{
    M(ImageGetOrCreateResponse) rs = MODAL__CLIENT__IMAGE_GET_OR_CREATE_RESPONSE__INIT;

    rs.image_id = STR(image);
    m_reply(c, &rs.base);
}

/* --- the definition --------------------------------------------------------------------------- */

struct order {
    struct mcall *call;                 /* NULL once the client has gone */
    struct modal *m;
    struct buf dockerfile;
    json_t *bases, *args, *secrets;     /* owned */
    struct registry_auth auth;          /* owned */
    bool no_cache, refresh;
    bool base_stands_in;                /* for Debian's or Python's image */
    struct definition_row row;
};

static void order_free(struct order *o)
{
    buf_done(&o->dockerfile);
    json_decref(o->bases);
    json_decref(o->args);
    json_decref(o->secrets);
    registry_auth_done(&o->auth);
    free(o);
}

/* Secrets count by what is in them, as clients make new ones for every run; keyed, so that the hash tells nothing about them. */
static int add_secret_values(const struct order *o, struct sha256 *s, struct err *e)
{
    auto_secret_values *auth =
        json_pack("{s:s?, s:s?, s:s?, s:s?}", "user", o->auth.user, "password", o->auth.password,
                  "session", o->auth.session, "region", o->auth.region);
    auto_json *all = json_pack("{s:O, s:O}", "secrets", o->secrets, "auth", auth);
    auto_free char *text = js_text(all, true);
    uint8_t sum[NET_SHA256_SIZE];
    int r = net_hmac(o->m->blob_key, sizeof o->m->blob_key, text, strlen(text), sum);

    explicit_bzero(text, strlen(text));
    if (r < 0)
        return err_set(e, ERR_INTERNAL, "the hash of a definition could not be computed");
    sha256_add(s, sum, sizeof sum);
    return 0;
}

static int hash_definition(const M(ImageGetOrCreateRequest) *rq, struct order *o, struct err *e)
{
    M(Image) image = *rq->image;
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    image.n_secret_ids = 0;
    image.image_registry_config = NULL;
    size_t n = protobuf_c_message_get_packed_size(&image.base);
    auto_free uint8_t *packed = mem_alloc(n + 1);
    (void)protobuf_c_message_pack(&image.base, packed);
    sha256_init(&s);
    sha256_add(&s, BUILD_VERSION, sizeof BUILD_VERSION);
    sha256_add(&s, m_text(rq->builder_version), strlen(m_text(rq->builder_version)) + 1);
    sha256_add(&s, packed, n);
    if (add_secret_values(o, &s, e) < 0)
        return -1;
    sha256_end(&s, sum);
    sha256_hex(sum, o->row.hash);
    return 0;
}

/* What FROM names. With `no_cache` a reference that was pulled is pulled again. */
static int add_bases(struct mcall *c, const M(Image) *image, const char *ref, struct order *o, struct err *e)
{
    struct err ignored = {0};

    o->bases = json_object();
    for (size_t i = 0; i < image->n_base_images; i++) {
        auto_image_row row = {0};
        const M(BaseImage) *b = image->base_images[i];
        if (image_get(c->m->core, m_text(b->image_id), &row, e) < 0)
            return -1;
        (void)json_object_set_new(o->bases, m_text(b->docker_tag), json_string(row.id));
        memcpy(o->row.base, row.id, sizeof o->row.base);
    }
    auto_image_row row = {0};
    if (ref[0] == '\0' || json_object_get(o->bases, ref) != NULL)
        return 0;
    bool is_here = images_find_ref(c, ref, &row, &o->base_stands_in, &ignored) == 0;
    o->refresh = o->no_cache && (!is_here || row.digest[0] != '\0') && !o->base_stands_in;
    if (!is_here || o->refresh)
        return 0;
    (void)json_object_set_new(o->bases, ref, json_string(row.id));
    memcpy(o->row.base, row.id, sizeof o->row.base);
    return 0;
}

static int add_secrets(struct mcall *c, const M(Image) *image, struct order *o, struct err *e)
{
    o->args = json_object();
    o->secrets = json_object();
    for (size_t i = 0; i < image->n_build_args; i++)
        (void)json_object_set_new(o->args, m_text(image->build_args[i]->key), json_string(m_text(image->build_args[i]->value)));
    for (size_t i = 0; i < image->n_secret_ids; i++) {
        auto_json *values = secret_values(c->m->vault, image->secret_ids[i], e);
        if (values == NULL)
            return -1;
        (void)json_object_update(o->secrets, values);
    }
    return 0;
}

static int add_registry(struct mcall *c, const M(ImageRegistryConfig) *r, struct order *o, struct err *e)
{
    static const enum registry_auth_wanted wanted[] = {
        [MODAL__CLIENT__REGISTRY_AUTH_TYPE__REGISTRY_AUTH_TYPE_AWS] = REGISTRY_WANTED_AWS,
        [MODAL__CLIENT__REGISTRY_AUTH_TYPE__REGISTRY_AUTH_TYPE_GCP] = REGISTRY_WANTED_GCP,
    };

    if (r == NULL || m_text(r->secret_id)[0] == '\0')
        return 0;
    auto_secret_values *values = secret_values(c->m->vault, r->secret_id, e);
    if (values == NULL)
        return -1;
    /* Of user and password clients say so too where the secret has something else. */
    return registry_auth_read(values, (size_t)r->registry_auth_type < array_len(wanted) ? wanted[r->registry_auth_type]
                                                                                        : REGISTRY_WANTED_ANY,
                              &o->auth, e);
}

static int read_order(struct mcall *c, const M(ImageGetOrCreateRequest) *rq, const char *ref, struct order *o, struct err *e)
{
    const M(Image) *image = rq->image;

    if (image->build_function != NULL)
        return err_set(
            e, ERR_UNSUPPORTED,
            "run_function: builds here run no functions of Python; do the same with run_commands, and files by "
            "add_local_file and add_local_dir with copy=True");
    if (image->n_volume_mounts > 0)
        return err_set(
            e, ERR_UNSUPPORTED,
            "volumes (%.60s): no volume is mounted in builds here; RUN --mount=type=cache keeps a directory from "
            "build to build",
            m_text(image->volume_mounts[0]->mount_path));
    const M(GPUConfig) *gpu = image->gpu_config;
    if (gpu != NULL && ((gpu->has_type && gpu->type != 0) || gpu->count > 0 || m_text(gpu->gpu_type)[0] != '\0'))
        return err_set(e, ERR_UNSUPPORTED, "gpu: a build here has no GPUs; leave it out if the commands do not need one");
    o->no_cache = rq->force_build || rq->ignore_cache;
    if (add_bases(c, image, ref, o, e) < 0 || add_secrets(c, image, o, e) < 0 ||
        add_registry(c, image->image_registry_config, o, e) < 0)
        return -1;
    for (size_t i = 0; i < image->n_dockerfile_commands; i++) {
        if (o->base_stands_in && image_def_is_tuning(image->dockerfile_commands[i]))
            continue;
        (void)buf_adds(&o->dockerfile, image->dockerfile_commands[i]);
        (void)buf_addc(&o->dockerfile, '\n');
    }
    return o->dockerfile.failed ? err_set(e, ERR_TOO_LARGE, "the definition has more than %u bytes", DF_TEXT_MAX) : 0;
}

/* --- the build -------------------------------------------------------------------------------- */

static void on_gone(struct mcall *c)
{
    struct order *o = c->user;

    o->call = NULL;                     /* its context is still being made */
    m_end(c);
}

static void start(void *ctx, const char *layer, const struct err *cause)
{
    struct order *o = ctx;
    struct mcall *c = o->call;
    struct err e = {0};
    const struct build_spec spec = {
        .kind = "image.build", .dockerfile = buf_str(&o->dockerfile), .dockerfile_len = o->dockerfile.len, .context = layer,
        .image = o->row.image, .args = o->args, .secrets = o->secrets, .bases = o->bases, .auth = &o->auth,
        .no_cache = o->no_cache, .refresh = o->refresh, .whole_context = true, .secret_env = true,
    };

    if (c == NULL) {
        order_free(o);
        return;
    }
    c->user = NULL;
    c->on_gone = NULL;
    id_make(o->row.image, "im-");
    o->row.created_us = clock_wall_us();
    if (cause != NULL) {
        answer_failure(c, cause);
    } else if (build_begin(o->m->core, &spec, o->row.operation, &e) < 0 ||
               store_definition_put(core_store(o->m->core), &o->row, &e) < 0) {
        answer_failure(c, &e);
    } else {
        answer_pending(c, o->row.image);
    }
    order_free(o);
}

/* The image or the running build of the same definition. True if the call was answered. */
static bool answer_known(struct mcall *c, const char *hash)
{
    struct definition_row row;
    auto_image_row image = {0};
    auto_operation_row operation = {0};
    struct err e;

    if (store_definition_get(m_store(c), hash, NULL, &row, &e) < 0 || row.image[0] == '\0')
        return false;
    if (store_image_get(m_store(c), row.image, &image, &e) == 0) {
        answer_image(c, &image);
        return true;
    }
    if (store_operation_get(m_store(c), row.operation, &operation, &e) < 0 || operation.state != OPERATION_RUNNING)
        return false;
    answer_pending(c, row.image);
    return true;
}

static void build(struct mcall *c, const M(ImageGetOrCreateRequest) *rq, const struct image_def *def)
{
    struct order *o = mem_zalloc(sizeof *o);
    struct err e = {0};

    o->call = c;
    o->m = c->m;
    buf_init(&o->dockerfile, DF_TEXT_MAX);
    if (read_order(c, rq, def->ref, o, &e) < 0 || hash_definition(rq, o, &e) < 0) {
        order_free(o);
        if (e.code == ERR_NOT_FOUND || e.code == ERR_UNSUPPORTED)
            answer_failure(c, &e);
        else
            m_fail(c, &e);
        return;
    }
    if (!o->no_cache && answer_known(c, o->row.hash)) {
        order_free(o);
        return;
    }
    c->user = o;
    c->on_gone = on_gone;
    char *mounts[] = {rq->image->context_mount_id};
    mounts_make_context(c->m, mounts, m_text(mounts[0])[0] != '\0' ? 1 : 0,
                        rq->image->context_files, rq->image->n_context_files, start, o);
}

/* 0 = it is an image that is here, 1 = it is to be built or pulled, -1. */
static int find(struct mcall *c, const M(ImageGetOrCreateRequest) * rq, struct image_def *def,
                struct image_row *row, struct err *e)
{
    const M(Image) *image = rq->image;
    struct err local = {0};
    bool stands_in = false;

    image_def_read(image->dockerfile_commands, image->n_dockerfile_commands, def);
    if (def->kind == IMAGE_DEF_EMPTY)
        return err_set(e, ERR_INVALID, "the image's definition has no FROM");
    if (image->build_function != NULL || m_text(image->context_mount_id)[0] != '\0' || def->kind == IMAGE_DEF_BUILD)
        return 1;
    if (def->kind == IMAGE_DEF_BASE && image->n_base_images == 1)
        return image_get(c->m->core, m_text(image->base_images[0]->image_id), row, e);
    if (strcmp(def->ref, "scratch") == 0)
        return 1;
    if (images_find_ref(c, def->ref, row, &stands_in, &local) < 0) {
        if (local.code == ERR_NOT_FOUND)
            return 1;
        *e = local;
        return -1;
    }
    if (stands_in) {
        m_warn(c, "%s is not here: the image named base, which has Debian and Python, stands for it", def->ref);
        return 0;
    }
    /* One that was pulled is known by its definition, as it was before it had its name here. */
    return def->has_tuning || row->digest[0] != '\0' ? 1 : 0;
}

void rpc_image_get_or_create(struct mcall *c)
{
    const M(ImageGetOrCreateRequest) *rq = REQ(c, ImageGetOrCreateRequest);
    auto_image_row row = {0};
    struct image_def def = {0};
    struct err e = {0};
    int r;

    if (m_text(rq->existing_image_id)[0] == '\0' && rq->image == NULL) {
        m_refuse(c, GRPC_INVALID_ARGUMENT, "the request has no image");
        return;
    }
    if (m_text(rq->existing_image_id)[0] != '\0')
        r = image_get(c->m->core, rq->existing_image_id, &row, &e);
    else
        r = find(c, rq, &def, &row, &e);
    if (r == 0)
        answer_image(c, &row);
    else if (r > 0)
        build(c, rq, &def);
    else if (e.code == ERR_NOT_FOUND || e.code == ERR_UNSUPPORTED)
        answer_failure(c, &e);
    else
        m_fail(c, &e);
}
