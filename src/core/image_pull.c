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
#include "core/image_fold.h"
#include "core/internal.h"
#include "core/life.h"

#define PULL_TIMEOUT_MS (6ULL * 3600 * 1000)

struct image_pull {
    struct core *core;
    struct grpc_call *grpc;
    char name[IMAGE_REF_SIZE];
    char *ref;                          /* owned */
    Quicksand__Node__ImagePullEvent *last;  /* with the layers; owned */
    struct node_call *fold;             /* under way, NULL = not */
    const Quicksand__Node__Layer *folded;   /* in place of the layers of `last`, NULL = none; borrowed */
    bool is_bad_reply, is_cancelled;
    /* until it is sent, which waits for the end of a removal that had begun; has a password */
    struct buf request;
    uint64_t bytes, total;
    struct operation *operation;        /* NULL = somebody else's callbacks: */
    image_line_fn line;
    image_pulled_fn done;
    void *ctx;
};

static void drop_request(struct image_pull *p)
{
    if (p->request.data != NULL)
        explicit_bzero(p->request.data, p->request.len);
    buf_done(&p->request);
}

static void pull_free(struct image_pull *p)
{
    drop_request(p);
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

    id_make(row->id, "im-");
    row->created_us = clock_wall_us();
    row->source = mem_strdup(p->ref);
    (void)snprintf(row->digest, sizeof row->digest, "%s", p->last->digest);
    if (image_layers_put(s, p->last->layers, p->last->n_layers, p->folded, row, e) < 0)
        return -1;
    return store_image_insert(s, row, e);
}

/* The image of the layers: one that was pulled with the same digest before, or a new row. */
static int keep(struct image_pull *p, char ret_id[ID_SIZE], struct err *e)
{
    struct store *s = p->core->store;
    auto_image_row row = {0};

    if (image_config_read(p->last->config != NULL ? p->last->config : "", &row, e) < 0)
        return -1;
    if (store_begin(s, STORE_DURABLE, e) < 0)
        return -1;
    if (store_image_by_digest(s, p->last->digest, ret_id, e) < 0)
        goto fail;
    /* An image that was folded when it came first: what came again is not its layers. */
    for (size_t i = 0; ret_id[0] != '\0' && i < p->last->n_layers; i++)
        if (store_layer_release(s, p->last->layers[i]->layer, e) < 0)
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

/* --- the node --------------------------------------------------------------------------------- */

static void say(struct image_pull *p, const char *line)
{
    if (p->operation != NULL)
        operation_log_text(p->operation, line, strlen(line));
    else
        p->line(p->ctx, line);
}

/* Layers that are about to come: if the pull breaks off, those that came are named by nothing but these rows, and go in a
 * while. */
static void note_layers(struct image_pull *p, const Quicksand__Node__ImagePullEvent *m)
{
    struct store *s = p->core->store;
    int64_t now = clock_wall_us();
    struct err e;
    int r = store_begin(s, STORE_FAST, &e);

    for (size_t i = 0; r == 0 && i < m->n_layers; i++)
        r = store_layer_put(s, m->layers[i]->layer, (int64_t)m->layers[i]->bytes, (int64_t)m->layers[i]->files, now, &e);
    if (r == 0)
        r = store_commit(s, &e);
    if (r < 0) {
        store_rollback(s);
        core_log(LOG_L_WARN, "image.pull", p->name, &e);
    }
}

static void on_event(struct image_pull *p, const Quicksand__Node__ImagePullEvent *m)
{
    if (m->n_layers > 0 && m->digest == NULL)
        note_layers(p, m);
    if (m->log != NULL)
        say(p, m->log);
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

/* What the node said of the pull itself. */
static int outcome(const struct image_pull *p, enum grpc_status status, const struct err *cause, struct err *e)
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
    return 0;
}

/* `e` = NULL: everything is there but the row. */
static void finish(struct image_pull *p, const struct err *e)
{
    char id[ID_SIZE] = "";
    struct err local = {0};

    if (p->core->is_stopping && p->operation != NULL) {
        pull_free(p);                   /* the row stays as it is: the next start tells */
        return;
    }
    if (e == NULL && keep(p, id, &local) < 0)
        e = &local;
    if (p->operation == NULL)
        p->done(p->ctx, id, e);
    else if (e != NULL)
        operation_fail(p->operation, e);
    else
        operation_succeed(p->operation, id,
                          json_pack("{s:s, s:s, s:s, s:b}", "image", id, "name", p->name, "digest",
                                    p->last->source, "existing", 0));
    struct core *c = p->core;
    pull_free(p);
    images_sweep(c);
}

static void on_folded(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct image_pull *p = ctx;

    p->fold = NULL;
    p->folded = (const Quicksand__Node__Layer *)reply;
    finish(p, e);
}

/* An image that is here already needs no second folding: its row says what it is made of. */
static bool must_fold(struct image_pull *p)
{
    char id[ID_SIZE] = "";
    struct err ignored;

    return p->last->n_layers > IMAGE_LAYERS_FOLD &&
           (store_image_by_digest(p->core->store, p->last->digest, id, &ignored) < 0 || id[0] == '\0');
}

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *cause, void *ctx)
{
    struct image_pull *p = ctx;
    struct err e = {0};

    p->grpc = NULL;
    if (outcome(p, status, cause, &e) < 0) {
        finish(p, &e);
    } else if (!must_fold(p) || p->core->is_stopping) {
        finish(p, NULL);
    } else {
        say(p, "the image has a long list of layers: they are copied into one");
        p->fold = image_fold(p->core, p->last->layers, p->last->n_layers, on_folded, p);
    }
}

static const struct grpc_ops ops = {.on_message = on_message, .on_end = on_end};

static void send_request(void *arg)
{
    struct image_pull *p = arg;
    struct err e;

    if (p->is_cancelled || p->core->is_stopping) {
        finish(p, (err_set(&e, p->is_cancelled ? ERR_CONFLICT : ERR_UNAVAILABLE,
                           p->is_cancelled ? "the pull was cancelled" : "the service is stopping"), &e));
        return;
    }
    p->grpc = grpc_client_call(p->core->node, "/quicksand.node.Node/ImagePull", NULL, 0, PULL_TIMEOUT_MS, &ops, p);
    grpc_send(p->grpc, p->request.data, p->request.len);
    grpc_send_end(p->grpc);
    drop_request(p);
}

static void make_request(struct image_pull *p, const struct image_pull_spec *spec, const struct registry_auth *auth)
{
    Quicksand__Node__ImagePullRequest m = QUICKSAND__NODE__IMAGE_PULL_REQUEST__INIT;
    size_t n;

    m.ref = p->ref;
    m.arch = (char *)(uintptr_t)spec->arch;
    m.user = auth->user;
    m.password = auth->password;
    m.has_auth = true;
    m.auth = (Quicksand__Node__RegistryAuth)auth->kind;
    m.session = auth->session;
    m.region = auth->region;
    m.has_max_bytes = m.has_max_files = true;
    m.max_bytes = IMAGE_BYTES_MAX;
    m.max_files = IMAGE_FILES_MAX;
    n = quicksand__node__image_pull_request__get_packed_size(&m);
    buf_init(&p->request, n + 1);
    void *packed = mem_alloc(n + 1);
    (void)quicksand__node__image_pull_request__pack(&m, packed);
    (void)buf_add(&p->request, packed, n);
    explicit_bzero(packed, n);
    free(packed);
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
        registry_auth_find(c->registry_auth, ref.registry, spec->auth, &auth, e) < 0)
        return NULL;
    struct image_pull *p = mem_zalloc(sizeof *p);
    c->imports++;
    p->core = c;
    memcpy(p->name, name, sizeof name);
    p->ref = mem_strdup(spec->ref);
    p->line = line;
    p->done = done;
    p->ctx = ctx;
    make_request(p, spec, &auth);
    registry_auth_done(&auth);
    images_when_quiet(c, send_request, p);
    return p;
}

static void on_fold_cancelled(void *arg)
{
    struct err e;

    err_set(&e, ERR_CONFLICT, "the pull was cancelled");
    finish(arg, &e);
}

void image_pull_cancel(struct image_pull *p)
{
    p->is_cancelled = true;
    if (p->grpc != NULL) {
        grpc_cancel(p->grpc);           /* its end is reported */
        return;
    }
    if (p->fold != NULL) {
        node_call_cancel(p->fold);
        p->fold = NULL;
        loop_defer(p->core->loop, on_fold_cancelled, p);
    }
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
    operation_succeed(op, row->id,
                      json_pack("{s:s, s:s, s:s, s:b}", "image", row->id, "name", name, "digest",
                                row->digest, "existing", 1));
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
    if (op != NULL && (spec->auth == NULL || spec->auth->user == NULL)) {
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
