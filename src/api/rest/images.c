/*
 * images.c - image.* operations
 */
#include <stdio.h>
#include <string.h>

#include "api/rest/handlers.h"
#include "api/rest/list.h"
#include "api/rest/node_ask.h"
#include "api/rest/operations.h"
#include "api/shared/build/build.h"
#include "base/mem.h"
#include "core/dockerfile/dockerfile.h"
#include "base/clock.h"
#include "core/image.h"
#include "core/image_pull.h"
#include "json/json.h"

#define VERIFY_MS (60ULL * 60 * 1000)

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

/* Text of the store, which core wrote. */
static json_t *stored(const char *text, json_t *otherwise)
{
    json_t *j = text != NULL ? json_loads(text, 0, NULL) : NULL;

    if (j == NULL)
        return otherwise;
    json_decref(otherwise);
    return j;
}

static json_t *image_json(const struct image_row *r)
{
    json_t *o = json_object();

    set(o, "id", json_string(r->id));
    set(o, "names", stored(r->names, json_array()));
    set(o, "layers", stored(r->layers, json_array()));
    set(o, "size_bytes", json_integer(r->size_bytes));
    set(o, "files", json_integer(r->files));
    set(o, "created_at", js_time_us(r->created_us));
    set(o, "env", stored(r->env, json_object()));
    set(o, "workdir", js_string_or_null(r->workdir));
    set(o, "user", js_string_or_null(r->user));
    set(o, "source", js_string_or_null(r->source != NULL && r->source[0] != '\0' ? r->source : NULL));
    set(o, "digest", js_string_or_null(r->digest[0] != '\0' ? r->digest : NULL));
    set(o, "last_used_at", js_time_us(r->used_us));
    return o;
}

/* --- import ---------------------------------------------------------------------------------- */

struct upload {
    bool is_context;
    struct image_import *import;
    size_t held; /* bytes taken from the client without giving credit back */
};

static void give_credit(struct call *c, struct upload *u)
{
    size_t n = u->held;

    u->held = 0;
    if (n > 0 && c->stream != NULL)
        http_stream_consume(c->stream, n);
}

static void on_body(struct call *c, const void *p, size_t n)
{
    struct upload *u = c->user;

    image_import_data(u->import, p, n);
    u->held += n;
    if (!image_import_is_full(u->import))
        give_credit(c, u);
}

static void on_body_end(struct call *c)
{
    image_import_end(((struct upload *)c->user)->import);
}

static void on_gone(struct call *c)
{
    struct upload *u = c->user;

    image_import_cancel(u->import);
    free(u);
    call_done(c, CALL_CLIENT_GONE);
}

static void on_writable(void *ctx)
{
    struct call *c = ctx;

    give_credit(c, c->user);
}

static json_t *context_json(const struct image_row *image)
{
    auto_json *layers = stored(image->layers, json_array());

    return json_pack("{s:O, s:I, s:I}", "context", json_array_get(layers, 0), "size_bytes",
                     (json_int_t)image->size_bytes, "files", (json_int_t)image->files);
}

static void on_imported(void *ctx, const struct image_row *image, const struct err *e)
{
    struct call *c = ctx;
    struct upload *u = c->user;
    bool is_context = u->is_context;

    give_credit(c, u); /* what is left of the body is dropped */
    free(u);
    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    if (is_context) {
        call_reply(c, 201, context_json(image));
        return;
    }
    call_set_target(c, image->id);
    call_reply(c, 201, image_json(image));
}

static const struct image_import_ops import_ops = {.on_writable = on_writable, .done = on_imported};

static void begin_upload(struct call *c, const struct image_config *cfg)
{
    struct upload *u = mem_zalloc(sizeof *u);

    u->is_context = cfg->is_context;
    c->user = u;
    c->on_body = on_body;
    c->on_body_end = on_body_end;
    c->on_gone = on_gone;
    u->import = image_import(c->core, cfg, &import_ops, c);
}

static json_t *read_env(struct call *c, struct err *e)
{
    auto_json *env = json_object();
    const char *item;

    for (size_t i = 0; (item = call_query_nth(c, "env", i)) != NULL; i++) {
        const char *eq = strchr(item, '=');
        if (eq == NULL || eq == item) {
            err_param(e, ERR_INVALID, "env", "env number %zu is not of the form NAME=value", i + 1);
            return NULL;
        }
        auto_free char *name = mem_strndup(item, (size_t)(eq - item));
        if (json_object_set_new(env, name, json_string(eq + 1)) < 0) {
            err_param(e, ERR_INVALID, "env", "env number %zu is not valid UTF-8", i + 1);
            return NULL;
        }
    }
    return take_ptr(&env);
}

static void import(struct call *c)
{
    struct err e;
    auto_json *env = read_env(c, &e);
    const char *name = call_query(c, "name");
    struct image_config cfg = {
        .name = name != NULL && *name != '\0' ? name : NULL,
        .env = env,
        .workdir = call_query(c, "workdir"),
        .user = call_query(c, "user"),
    };

    if (env == NULL || image_config_check(&cfg, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    begin_upload(c, &cfg);
}

static void upload_context(struct call *c)
{
    const struct image_config cfg = {.is_context = true};

    begin_upload(c, &cfg);
}

/* --- the rest -------------------------------------------------------------------------------- */

static void add_row(void *ctx, const struct image_row *r)
{
    page_add(ctx, image_json(r), r->created_us, r->id);
}

static void list(struct call *c)
{
    struct page p;
    struct err e;

    if (page_init(&p, c, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    if (store_image_list(core_store(c->core), p.cursor, p.cursor_id, page_limit(&p), add_row, &p,
                         &e) < 0)
        page_fail(&p, c, &e);
    else
        page_reply(&p, c);
}

struct layer_list {
    json_t *items;
    int64_t shared_bytes;       /* in layers that other images have too */
};

static void add_layer(void *ctx, const struct layer_row *r)
{
    struct layer_list *l = ctx;

    (void)json_array_append_new(l->items,
                                json_pack("{s:s, s:I, s:I, s:I}", "layer", r->layer, "bytes",
                                          (json_int_t)r->bytes, "files", (json_int_t)r->files,
                                          "images", (json_int_t)r->images));
    l->shared_bytes += r->images > 1 ? r->bytes : 0;
}

static void add_user(void *ctx, const struct sandbox_row *r)
{
    (void)json_array_append_new(ctx, json_string(r->id));
}

/* What only one image is asked for: its layers, who lives of it, its whole configuration. */
static int add_details(struct call *c, const struct image_row *row, json_t *o, struct err *e)
{
    struct sandbox_filter live = {.image = row->id, .limit = LIMIT_LIST,
                                  .states = 1U << STORE_CREATING | 1U << STORE_RUNNING | 1U << STORE_STOPPING};
    struct layer_list l = {.items = json_array()};
    json_t *users = json_array();

    set(o, "layer_details", l.items);
    set(o, "sandboxes", users);
    set(o, "config", stored(row->config, json_object()));
    if (store_image_layers(core_store(c->core), row->id, add_layer, &l, e) < 0 ||
        store_sandbox_list(core_store(c->core), &live, add_user, users, e) < 0)
        return -1;
    set(o, "shared_bytes", json_integer(l.shared_bytes));
    return 0;
}

static void get(struct call *c)
{
    auto_image_row row = {0};
    struct err e;

    if (image_get(c->core, call_param(c, "id"), &row, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    auto_json *o = image_json(&row);
    if (add_details(c, &row, o, &e) < 0)
        call_fail(c, &e);
    else
        call_reply(c, 200, take_ptr(&o));
}

/* Of a pull or a build: a user and a password, or an object with what a secret for a registry has. */
static int read_auth(struct call *c, struct registry_auth *ret, struct err *e)
{
    const char *user = call_string(c, "username", NULL), *password = call_string(c, "password", NULL);
    const json_t *values = json_object_get(c->body, "credentials");

    const json_t *auths = json_object_get(c->body, "auths");

    *ret = (struct registry_auth){0};
    if (auths != NULL && !json_is_null(auths) && registry_auths_read(auths, ret, e) < 0)
        return -1;
    if (json_object_size(values) == 0) {
        if (user != NULL || password != NULL) {
            ret->user = mem_strdup(user != NULL ? user : "");
            ret->password = mem_strdup(password != NULL ? password : "");
        }
        return 0;
    }
    if (user != NULL || password != NULL)
        return err_param(e, ERR_INVALID, "credentials", "credentials and username or password exclude each other");
    if (registry_auth_read(values, REGISTRY_WANTED_ANY, ret, e) == 0)
        return 0;
    (void)snprintf(e->param, sizeof e->param, "credentials");
    return -1;
}

static void pull(struct call *c)
{
    auto_registry_auth auth = {0};
    const struct image_pull_spec spec = {
        .ref = call_string(c, "ref", ""),
        .name = call_string(c, "name", NULL),
        .arch = call_string(c, "arch", NULL),
        .auth = &auth,
        .refresh = call_bool(c, "refresh", false),
    };
    char id[ID_SIZE];
    struct err e = {0};

    if (read_auth(c, &auth, &e) < 0 || image_pull(c->core, &spec, id, &e) < 0)
        call_fail(c, &e);
    else
        operation_accepted(c, id);
}

static void on_verified(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    static const char *const states[] = {"whole", "damaged", "missing", "unknown"};
    const Quicksand__Node__ImageVerifyResponse *rs = (const Quicksand__Node__ImageVerifyResponse *)reply;
    bool is_whole = true;

    (void)state;
    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    json_t *items = json_array();
    for (size_t i = 0; i < rs->n_verdicts; i++) {
        const Quicksand__Node__LayerVerdict *v = rs->verdicts[i];
        (void)json_array_append_new(
            items, json_pack("{s:s, s:s, s:o}", "layer", v->layer, "state",
                             v->state < array_len(states) ? states[v->state] : "unknown", "message",
                             js_string_or_null(
                                 v->message != NULL && *v->message != '\0' ? v->message : NULL)));
        is_whole = is_whole && v->state != 1 && v->state != 2;
    }
    call_reply(c, 200, json_pack("{s:b, s:o}", "whole", is_whole, "layers", items));
}

static void verify(struct call *c)
{
    Quicksand__Node__ImageVerifyRequest rq = QUICKSAND__NODE__IMAGE_VERIFY_REQUEST__INIT;
    auto_image_row row = {0};
    char *names[LIMIT_LAYERS];
    struct err e;

    if (image_get(c->core, call_param(c, "id"), &row, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    call_set_target(c, row.id);
    auto_json *layers = stored(row.layers, json_array());
    for (size_t i = 0; i < json_array_size(layers) && i < LIMIT_LAYERS; i++)
        names[rq.n_layers++] = (char *)(uintptr_t)json_string_value(json_array_get(layers, i));
    rq.layers = names;
    node_ask(c, "ImageVerify", &rq.base, &quicksand__node__image_verify_response__descriptor, VERIFY_MS, true, on_verified, NULL);
}

static void remove_name(struct call *c)
{
    struct err e;

    if (image_unname(c->core, call_param(c, "name"), &e) < 0)
        call_fail(c, &e);
    else
        call_reply_empty(c, 204);
}

static void build(struct call *c)
{
    auto_registry_auth auth = {0};
    const struct build_spec spec = {
        .kind = "image.build",
        .dockerfile = call_string(c, "dockerfile", ""),
        .dockerfile_len = strlen(call_string(c, "dockerfile", "")),
        .context = call_string(c, "context", NULL),
        .name = call_string(c, "name", NULL),
        .target = call_string(c, "target", NULL),
        .args = json_object_get(c->body, "args"),
        .labels = json_object_get(c->body, "labels"),
        .secrets = json_object_get(c->body, "secrets"),
        .network = json_is_null(json_object_get(c->body, "network")) ? NULL : json_object_get(c->body, "network"),
        .auth = &auth,
        .whole_context = call_bool(c, "whole_context", false),
        .no_cache = call_bool(c, "no_cache", false),
        .refresh = call_bool(c, "refresh", false),
        .step_timeout_ms = (int64_t)(call_number(c, "step_timeout_s", 0) * 1000),
        .memory_mb = (uint64_t)call_int(c, "memory_mb", 0),
        .disk_mb = (uint64_t)call_int(c, "disk_mb", 0),
        .cpu_milli = (uint32_t)(call_number(c, "cpu", 0) * 1000),
    };
    char id[ID_SIZE];
    struct err e = {0};

    if (spec.context != NULL && strspn(spec.context, "0123456789abcdef") != 64)
        (void)err_param(&e, ERR_INVALID, "context", "context is not what an upload answered");
    else if (read_auth(c, &auth, &e) == 0 && build_begin(c->core, &spec, id, &e) == 0) {
        operation_accepted(c, id);
        return;
    }
    if (e.param[0] == '\0' && e.code == ERR_INVALID)
        (void)snprintf(e.param, sizeof e.param, "dockerfile");
    call_fail(c, &e);
}

static void add_garbage(void *ctx, const char *image, int64_t bytes, const char *source)
{
    (void)json_array_append_new(ctx, json_pack("{s:s, s:I, s:o}", "image", image, "size_bytes", (json_int_t)bytes, "source",
                                               js_string_or_null(source)));
}

struct cache_list {
    json_t *items;
    int64_t before_us;                  /* only those not used since; 0 = all */
};

static void add_cache(void *ctx, const char *id, int64_t bytes, int64_t used_us)
{
    struct cache_list *l = ctx;

    if (l->before_us == 0 || used_us < l->before_us)
        (void)json_array_append_new(
            l->items, json_pack("{s:o, s:I, s:f}", "id", js_string_lossy(id), "size_bytes",
                                (json_int_t)bytes, "last_used_at", (double)used_us / 1e6));
}

static void list_caches(struct call *c)
{
    struct cache_list l = {.items = json_array()};
    struct err e;

    if (store_step_list(core_store(c->core), IMAGE_CACHE_KEY, add_cache, &l, &e) < 0) {
        json_decref(l.items);
        call_fail(c, &e);
        return;
    }
    call_reply(c, 200, json_pack("{s:o}", "items", l.items));
}

static void remove_cache(struct call *c)
{
    auto_free char *key = mem_printf(IMAGE_CACHE_KEY "%s", call_param(c, "id"));
    struct store *s = core_store(c->core);
    char layer[72] = "";
    bool found = false;
    struct err e;

    if (store_step_get(s, key, clock_wall_us(), &found, layer, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    if (!found) {
        (void)err_param(&e, ERR_NOT_FOUND, "id", "there is no cache '%.100s'", call_param(c, "id"));
        call_fail(c, &e);
        return;
    }
    image_hold(c->core);
    int r = store_step_remove(s, key, &e);
    if (r == 0)
        r = store_layer_release(s, layer, &e);
    image_release(c->core);             /* sweeps */
    if (r < 0)
        call_fail(c, &e);
    else
        call_reply_empty(c, 204);
}

static void collect(struct call *c)
{
    const struct image_gc_spec spec = {
        .unused_ms = (int64_t)(call_number(c, "unused_s", IMAGE_GC_UNUSED_S) * 1000),
        .named_too = call_bool(c, "named", false),
        .dry_run = call_bool(c, "dry_run", false),
    };
    auto_json *items = json_array(), *caches = json_array();
    struct cache_list l = {.items = caches, .before_us = clock_wall_us() - spec.unused_ms * 1000};
    struct image_gc_result result;
    struct err e;

    if (store_step_list(core_store(c->core), IMAGE_CACHE_KEY, add_cache, &l, &e) < 0 ||
        image_gc(c->core, &spec, add_garbage, items, &result, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    call_reply(c, 200,
               json_pack("{s:b, s:O, s:O, s:I, s:I}", "dry_run", spec.dry_run, "images", items,
                         "caches", caches, "freed_bytes", (json_int_t)result.freed_bytes,
                         "build_steps", (json_int_t)result.steps));
}

static void set_name(struct call *c)
{
    auto_image_row row = {0};
    struct err e;

    if (image_set_name(c->core, call_param(c, "name"), call_string(c, "image", ""), &row, &e) < 0)
        call_fail(c, &e);
    else
        call_reply(c, 200, image_json(&row));
}

static void delete (struct call *c)
{
    struct err e;

    if (image_remove(c->core, call_param(c, "id"), &e) < 0)
        call_fail(c, &e);
    else
        call_reply_empty(c, 204);
}

static const struct field import_query[] = {
    {"name", FIELD_STRING, 0, 0, IMAGE_REF_SIZE - 1, NULL, "name to point at the image"},
    {"env", FIELD_STRING, FIELD_REPEATED, 1, LIMIT_ENV_BYTES, NULL,
     "NAME=value for every sandbox of the image"},
    {"workdir", FIELD_STRING, FIELD_ABS_PATH, 1, LIMIT_PATH - 1, NULL,
     "working directory of its sandboxes"},
    {"user", FIELD_STRING, 0, 1, 128, NULL,
     "user of its sandboxes, name or id, with optional :group"},
};
static const struct field export_query[] = {
    {"compression", FIELD_ENUM, 0, 0, 0, "gzip|zstd|none", "of the layers; default gzip"},
};
static const struct field list_query[] = {LIST_FIELDS};
static const struct field name_body[] = {
    {"image", FIELD_STRING, FIELD_REQUIRED, 1, IMAGE_REF_SIZE - 1, NULL, "image id or name"},
};
#define CREDENTIALS                                                                                              \
    "for the registry, in place of user and password; not kept: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "       \
    "AWS_SESSION_TOKEN, AWS_REGION; or SERVICE_ACCOUNT_JSON; or REGISTRY_USERNAME, REGISTRY_PASSWORD"
#define AUTHS                                                                                                    \
    "credentials by registry, as docker login writes them: {\"host[:port]\": {\"auth\": base64 of user:password}}, or with " \
    "username and password, or an identitytoken; not kept; user and password, or credentials, go before them"
static const struct field pull_body[] = {
    {"ref", FIELD_STRING, FIELD_REQUIRED, 1, IMAGE_REF_SIZE - 1, NULL, "[registry/]path[:tag][@sha256:digest]"},
    {"name", FIELD_STRING, FIELD_NULLABLE, 1, IMAGE_REF_SIZE - 1, NULL, "name here; default the reference itself"},
    {"arch", FIELD_STRING, FIELD_NULLABLE, 1, 31, NULL, "architecture, such as amd64; default the machine's"},
    {"username", FIELD_STRING, FIELD_NULLABLE, 0, 255, NULL, "for the registry; not kept"},
    {"password", FIELD_STRING, FIELD_NULLABLE, 0, 8191, NULL, "for the registry; not kept"},
    {"credentials", FIELD_STRING_MAP, 0, 0, 0, NULL, CREDENTIALS},
    {"auths", FIELD_JSON, FIELD_NULLABLE, 0, 0, NULL, AUTHS},
    {"refresh", FIELD_BOOL, 0, 0, 0, NULL, "resolve the tag again though an image has the name; default false"},
};
static const struct field build_body[] = {
    {"username", FIELD_STRING, FIELD_NULLABLE, 0, 255, NULL, "for the registry of FROM; not kept"},
    {"password", FIELD_STRING, FIELD_NULLABLE, 0, 8191, NULL, "for the registry of FROM; not kept"},
    {"dockerfile", FIELD_STRING, FIELD_REQUIRED, 1, DF_TEXT_MAX, NULL,
     "the text of the Dockerfile"},
    {"context", FIELD_STRING, FIELD_NULLABLE, 64, 64, NULL,
     "what the upload of the files answered; each upload serves one build"},
    {"whole_context", FIELD_BOOL, 0, 0, 0, NULL,
     "a .dockerignore in the context is a file like others; default false"},
    {"name", FIELD_STRING, FIELD_NULLABLE, 1, IMAGE_REF_SIZE - 1, NULL,
     "name to point at the image"},
    {"target", FIELD_STRING, FIELD_NULLABLE, 1, 128, NULL, "stage to build; default the last"},
    {"args", FIELD_STRING_MAP, 0, 0, 0, NULL, "values of ARG"},
    {"labels", FIELD_STRING_MAP, 0, 0, 0, NULL, "labels of the image"},
    {"secrets", FIELD_STRING_MAP, 0, 0, 0, NULL,
     "for RUN --mount=type=secret, by id; in no layer, cache key or log"},
    {"credentials", FIELD_STRING_MAP, 0, 0, 0, NULL, CREDENTIALS},
    {"auths", FIELD_JSON, FIELD_NULLABLE, 0, 0, NULL, AUTHS},
    {"network", FIELD_JSON, FIELD_NULLABLE, 0, 0, NULL,
     "what RUN may reach: \"block\", \"open\" (public addresses), or a policy; default build_network of the configuration"},
    {"no_cache", FIELD_BOOL, 0, 0, 0, NULL, "run every step; default false"},
    {"refresh", FIELD_BOOL, 0, 0, 0, NULL, "resolve the tags of FROM again; default false"},
    {"step_timeout_s", FIELD_NUMBER, FIELD_NULLABLE, 1, 24 * 3600, NULL,
     "longest time of one RUN; default 3600"},
    {"memory_mb", FIELD_INT, FIELD_NULLABLE, LIMIT_MEMORY_MB_MIN, LIMIT_MEMORY_MB_MAX, NULL,
     "memory of a RUN"},
    {"disk_mb", FIELD_INT, FIELD_NULLABLE, 1, LIMIT_DISK_MB_MAX, NULL,
     "what a RUN may write; default 16384, or the daemon's"},
    {"cpu", FIELD_NUMBER, FIELD_NULLABLE, 0.01, 1024, NULL, "processors of a RUN"},
};
static const struct field gc_body[] = {
    {"unused_s", FIELD_NUMBER, 0, 0, 1e9, NULL, "only what was made and last used so long ago; default a day"},
    {"named", FIELD_BOOL, 0, 0, 0, NULL, "images that have a name too; default false"},
    {"dry_run", FIELD_BOOL, 0, 0, 0, NULL, "only say what would go; default false"},
};

const struct op rest_image_ops[] = {
    {"image.import", "POST", "/v1/images", "image:write", OP_RAW_BODY,
     "Import a tar of a root file system", import_query, array_len(import_query), NULL, 0, 201,
     import},
    {"image.list", "GET", "/v1/images", "image:read", 0, "List images", list_query,
     array_len(list_query), NULL, 0, 200, list},
    {"image.get", "GET", "/v1/images/{id}", "image:read", 0, "An image, by id or name", NULL, 0,
     NULL, 0, 200, get},
    {"image.export", "GET", "/v1/images/{id}/export", "image:read", OP_STREAM,
     "An image as a tar of an OCI layout", export_query, array_len(export_query), NULL, 0, 200,
     image_export_get},
    {"image.verify", "POST", "/v1/images/{id}/verify", "image:read", 0,
     "Read all layers of an image: are they what was unpacked?", NULL, 0, NULL, 0, 200, verify},
    {"image.delete", "DELETE", "/v1/images/{id}", "image:write", 0, "Remove an image and its names",
     NULL, 0, NULL, 0, 204, delete},
    {"image.name", "PUT", "/v1/images/names/{name}", "image:write", 0, "Point a name at an image",
     NULL, 0, name_body, array_len(name_body), 200, set_name},
    {"image.unname", "DELETE", "/v1/images/names/{name}", "image:write", 0,
     "Remove a name; the image stays", NULL, 0, NULL, 0, 204, remove_name},
    {"image.pull", "POST", "/v1/images:pull", "image:write", 0, "Pull an image from a registry",
     NULL, 0, pull_body, array_len(pull_body), 202, pull},
    {"build.context", "POST", "/v1/builds/contexts", "image:write", OP_RAW_BODY,
     "Upload the files of a build as a tar", NULL, 0, NULL, 0, 201, upload_context},
    {"build.create", "POST", "/v1/builds", "image:write", 0, "Build an image out of a Dockerfile",
     NULL, 0, build_body, array_len(build_body), 202, build},
    {"build.caches", "GET", "/v1/builds/caches", "image:read", 0,
     "List the caches of RUN --mount=type=cache", NULL, 0, NULL, 0, 200, list_caches},
    {"build.cache_delete", "DELETE", "/v1/builds/caches/{id}", "image:write", 0,
     "Remove what a cache holds", NULL, 0, NULL, 0, 204, remove_cache},
    {"image.gc", "POST", "/v1/images:gc", "image:write", 0,
     "Remove images and build steps that nobody uses", NULL, 0, gc_body, array_len(gc_body), 200,
     collect},
};
const size_t rest_image_nops = array_len(rest_image_ops);
