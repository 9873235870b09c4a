/*
 * image_pull.c - pulling images from registries
 *
 * The node's image role does the work; here are names, credentials and rows. A tag is resolved once: the image that has the
 * name stays what it is until somebody asks for a refresh.
 */
#include "core/image_pull.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/image.h"
#include "core/image_config.h"
#include "core/internal.h"
#include "core/life.h"
#include "core/registry_auth.h"

#define PULL_TIMEOUT_MS (6ULL * 3600 * 1000)

struct image_pull {
    struct core *core;
    struct grpc_call *grpc;
    char name[IMAGE_REF_SIZE];
    char *ref;                          /* owned */
    Quicksand__Node__ImagePullEvent *last;  /* with the layers; owned */
    bool is_bad_reply, is_cancelled;
    char suspect[128];                  /* layer that was being removed when the pull began */
    uint64_t bytes, total;
    struct operation *operation;        /* NULL = somebody else's callbacks: */
    image_line_fn line;
    image_pulled_fn done;
    void *ctx;
};

static void pull_free(struct image_pull *p)
{
    p->core->imports--;
    if (p->last != NULL)
        quicksand__node__image_pull_event__free_unpacked(p->last, NULL);
    free(p->ref);
    free(p);
}

/* --- the row ---------------------------------------------------------------------------------------------------------------- */

static int insert(struct image_pull *p, struct image_row *row, struct err *e)
{
    struct store *s = p->core->store;
    auto_json *layers = json_array();

    id_make(row->id, "im-");
    row->created_us = clock_wall_us();
    row->source = mem_strdup(p->ref);
    (void)snprintf(row->digest, sizeof row->digest, "%s", p->last->digest);
    for (size_t i = 0; i < p->last->n_layers; i++) {
        const Quicksand__Node__Layer *l = p->last->layers[i];
        (void)json_array_append_new(layers, json_string(l->layer));
        if (store_layer_put(s, l->layer, (int64_t)l->bytes, (int64_t)l->files, row->created_us, e) < 0)
            return -1;
    }
    row->layers = js_text(layers, false);
    return store_image_insert(s, row, e);
}

/* The image of the layers: one that was pulled with the same digest before, or a new row. */
static int keep(struct image_pull *p, char ret_id[ID_SIZE], struct err *e)
{
    struct store *s = p->core->store;
    auto_image_row row = {0};

    if (p->last->n_layers > LIMIT_LAYERS)
        return err_set(e, ERR_TOO_LARGE, "the image has %zu layers, at most %d can be mounted", p->last->n_layers, LIMIT_LAYERS);
    if (image_config_read(p->last->config != NULL ? p->last->config : "", &row, e) < 0)
        return -1;
    if (store_begin(s, STORE_DURABLE, e) < 0)
        return -1;
    if (store_image_by_digest(s, p->last->digest, ret_id, e) < 0)
        goto fail;
    if (ret_id[0] == '\0') {
        if (insert(p, &row, e) < 0 || store_image_measure(s, row.id, e) < 0)
            goto fail;
        memcpy(ret_id, row.id, ID_SIZE);
    }
    if (store_image_name(s, p->name, ret_id, e) < 0 || store_commit(s, e) < 0)
        goto fail;
    log_info("image.pulled", "id=%s digest=%.19s layers=%zu", ret_id, p->last->digest, p->last->n_layers);
    return 0;
fail:
    store_rollback(s);
    return -1;
}

/* --- the node ----------------------------------------------------------------------------------------------------------------- */

static void on_event(struct image_pull *p, const Quicksand__Node__ImagePullEvent *m)
{
    if (m->log != NULL) {
        if (p->operation != NULL)
            operation_log_text(p->operation, m->log, strlen(m->log));
        else
            p->line(p->ctx, m->log);
    }
    if (m->has_total_bytes && p->operation != NULL)
        operation_progress(p->operation,
                           json_pack("{s:I, s:I}", "bytes", (json_int_t)m->bytes, "total_bytes", (json_int_t)m->total_bytes));
}

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    struct image_pull *pull = ctx;
    Quicksand__Node__ImagePullEvent *m = quicksand__node__image_pull_event__unpack(NULL, n, p);

    grpc_call_consumed(c, n);
    if (m == NULL) {
        pull->is_bad_reply = true;
        return;
    }
    if (!pull->is_cancelled)
        on_event(pull, m);
    if (m->n_layers > 0 && pull->last == NULL && m->digest != NULL)
        pull->last = m;
    else
        quicksand__node__image_pull_event__free_unpacked(m, NULL);
}

static bool is_suspect(const struct image_pull *p)
{
    for (size_t i = 0; i < p->last->n_layers; i++)
        if (p->suspect[0] != '\0' && strcmp(p->suspect, p->last->layers[i]->layer) == 0)
            return true;
    return false;
}

static int outcome(struct image_pull *p, enum grpc_status status, const struct err *cause, char ret_id[ID_SIZE], struct err *e)
{
    if (p->is_cancelled)
        return err_set(e, ERR_CONFLICT, "the pull was cancelled");
    if (status != GRPC_OK && cause != NULL) {
        *e = *cause;
        return -1;
    }
    if (status != GRPC_OK)
        return err_set(e, ERR_UNAVAILABLE, "the node did not answer");
    if (p->last == NULL || p->is_bad_reply)
        return err_set(e, ERR_INTERNAL, "the node's answer to a pull could not be read");
    if (is_suspect(p))
        return err_set(e, ERR_UNAVAILABLE, "a layer of it was being removed meanwhile: pull it again");
    return keep(p, ret_id, e);
}

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *cause, void *ctx)
{
    struct image_pull *p = ctx;
    char id[ID_SIZE] = "";
    struct err e = {0};
    int r;

    p->grpc = NULL;
    if (p->core->is_stopping && p->operation != NULL) {
        pull_free(p);                   /* the row stays as it is: the next start tells */
        return;
    }
    r = outcome(p, status, cause, id, &e);
    if (p->operation == NULL)
        p->done(p->ctx, id, r < 0 ? &e : NULL);
    else if (r < 0)
        operation_fail(p->operation, &e);
    else
        operation_succeed(p->operation, id,
                          json_pack("{s:s, s:s, s:s, s:b}", "image", id, "name", p->name, "digest", p->last->source, "existing", 0));
    pull_free(p);
}

static const struct grpc_ops ops = {.on_message = on_message, .on_end = on_end};

static void send_request(struct image_pull *p, const struct image_pull_spec *spec, const struct registry_auth *auth)
{
    Quicksand__Node__ImagePullRequest m = QUICKSAND__NODE__IMAGE_PULL_REQUEST__INIT;
    size_t n;
    auto_buf b = {0};

    m.ref = p->ref;
    m.arch = (char *)(uintptr_t)spec->arch;
    m.user = (char *)(uintptr_t)auth->user;
    m.password = (char *)(uintptr_t)auth->password;
    m.has_max_bytes = m.has_max_files = true;
    m.max_bytes = IMAGE_BYTES_MAX;
    m.max_files = IMAGE_FILES_MAX;
    n = quicksand__node__image_pull_request__get_packed_size(&m);
    buf_init(&b, n + 1);
    (void)quicksand__node__image_pull_request__pack(&m, buf_reserve(&b, n + 1));
    p->grpc = grpc_client_call(p->core->node, "/quicksand.node.Node/ImagePull", NULL, 0, PULL_TIMEOUT_MS, &ops, p);
    grpc_send(p->grpc, b.data, n);
    grpc_send_end(p->grpc);
    explicit_bzero(b.data, n);
}

static int name_of(const struct image_pull_spec *spec, char ret[IMAGE_REF_SIZE], struct err *e)
{
    struct image_ref ref;

    if (image_ref_parse(spec->ref, &ref, e) < 0) {
        (void)snprintf(e->param, sizeof e->param, "ref");
        return -1;
    }
    return image_name_normalize(spec->name != NULL ? spec->name : spec->ref, ret, e);
}

struct image_pull *image_pull_begin(struct core *c, const struct image_pull_spec *spec, image_line_fn line, image_pulled_fn done,
                                    void *ctx, struct err *e)
{
    struct registry_auth auth;
    struct image_ref ref;
    char name[IMAGE_REF_SIZE];

    if (c->is_stopping) {
        err_set(e, ERR_UNAVAILABLE, "the service is stopping");
        return NULL;
    }
    if (name_of(spec, name, e) < 0 || image_ref_parse(spec->ref, &ref, e) < 0 ||
        registry_auth_find(c->registry_auth, ref.registry, spec->user, spec->password, &auth, e) < 0)
        return NULL;
    struct image_pull *p = mem_zalloc(sizeof *p);
    c->imports++;
    p->core = c;
    memcpy(p->suspect, c->removing, sizeof p->suspect);
    memcpy(p->name, name, sizeof name);
    p->ref = mem_strdup(spec->ref);
    p->line = line;
    p->done = done;
    p->ctx = ctx;
    send_request(p, spec, &auth);
    registry_auth_done(&auth);
    return p;
}

void image_pull_cancel(struct image_pull *p)
{
    p->is_cancelled = true;
    if (p->grpc != NULL)
        grpc_cancel(p->grpc);           /* its end is reported */
}

static void on_cancel(void *ctx)
{
    image_pull_cancel(ctx);
}

/* What an earlier pull brought is the answer: an operation that has ended before anybody asks. */
static int answer_existing(struct core *c, const struct image_row *row, const char *name, const json_t *request,
                           char ret_operation[ID_SIZE], struct err *e)
{
    struct operation *op = operation_begin(c, "image.pull", "", request, e);

    if (op == NULL)
        return -1;
    memcpy(ret_operation, operation_id(op), ID_SIZE);
    operation_log(op, "%s is here already as %s", name, row->id);
    operation_succeed(op, row->id, json_pack("{s:s, s:s, s:s, s:b}", "image", row->id, "name", name, "digest", row->digest, "existing", 1));
    return 0;
}

int image_pull(struct core *c, const struct image_pull_spec *spec, char ret_operation[ID_SIZE], struct err *e)
{
    auto_image_row row = {0};
    char name[IMAGE_REF_SIZE];
    struct err local = {0};

    if (name_of(spec, name, e) < 0)
        return -1;
    auto_json *request = json_pack("{s:s, s:s, s:b}", "ref", spec->ref, "name", name, "refresh", spec->refresh);
    if (!spec->refresh && store_image_get(c->store, name, &row, &local) == 0)
        return answer_existing(c, &row, name, request, ret_operation, e);
    struct operation *op = operation_running(c, "image.pull", name);
    if (op != NULL && spec->password == NULL && spec->user == NULL) {
        memcpy(ret_operation, operation_id(op), ID_SIZE);
        return 0;
    }
    op = operation_begin(c, "image.pull", name, request, e);
    if (op == NULL)
        return -1;
    struct image_pull *p = image_pull_begin(c, spec, NULL, NULL, NULL, e);
    if (p == NULL) {
        operation_fail(op, e);
        return -1;
    }
    p->operation = op;
    operation_on_cancel(op, on_cancel, p);
    memcpy(ret_operation, operation_id(op), ID_SIZE);
    return 0;
}
