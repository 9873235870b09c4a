/*
 * network.c - the policies of the sandboxes here, on disk and in egress
 */
#include "node/network.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"
#include "ipc/egress_proto.h"
#include "ipc/policy_wire.h"
#include "node/call.h"
#include "node/egress_link.h"
#include "node/monitor_link.h"
#include "node/modal/router.h"
#include "node/network_log.h"
#include "node/network_note.h"
#include "node/ops.h"
#include "node/trust.h"
#include "sys/fd.h"

#define DIRECTORY ".network"
#define FILE_MAX_BYTES (LIMIT_POLICY_BYTES + 512)
#define MESSAGE_MAX_BYTES (FILE_MAX_BYTES + EGRESS_SECRETS_BYTES + EGRESS_AUTHORITY_BYTES)
#define SECRETS_ROOM 4096      /* what buf_reserve asks for ahead */
#define SOCKETS_MS 10000        /* the monitor answers at once */
#define EGRESS_MS 10000
#define STATUS_MS 2000
#define CHANGE_MS 5000          /* who changes a policy is told if it is not in force by then */

struct network {
    struct node *node;
    struct egress_link *link;
    struct network_log *log;
    int fd;                     /* data_dir/node/.network */
    struct map notes;           /* sandbox -> struct network_note, owned: of those that egress was told of since we began */
};

/* One sandbox on its way to egress. */
struct attach {
    struct network *network;
    char sandbox[ID_SIZE];
    struct op *op;              /* who waits for it, or NULL */
    network_done done;          /* with an op */
    uint8_t *policy;            /* that is to be put in force, without its revision; owned, NULL: the one on disk */
    size_t policy_len;
    char *if_follows;           /* only if it follows this name; owned, NULL: in any case */
};

static ssize_t load(struct network *w, const char *sandbox, uint8_t *out)
{
    auto_close int fd = openat(w->fd, sandbox, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? -errno : fd_read_all(fd, out, FILE_MAX_BYTES);
}

/* What egress gets of a sandbox, as it is on disk; out has FILE_MAX_BYTES and is what *ret points into. */
static int load_policy(struct network *w, const char *sandbox, uint8_t *out, struct egress_policy *ret, struct err *e)
{
    ssize_t n = load(w, sandbox, out);

    if (n < 0)
        return err_sys(e, (int)-n, "read the network policy of %s", sandbox);
    if (egress_policy_decode(ret, out, (size_t)n) < 0)
        return err_set(e, ERR_INTERNAL, "the network policy of %s on disk cannot be read", sandbox);
    return 0;
}

static void keep_note(struct network *w, const char *sandbox, struct network_note *note)
{
    network_note_free(map_put(&w->notes, sandbox, note));
}

/*
 * Tells egress a policy together with what is on no disk. The reply goes to `cb`; what cannot be put together comes back as an error
 * instead.
 */
static int tell(struct network *w, enum egress_type type, struct egress_policy *m, const int *fds, int nfds, uint64_t timeout_ms,
                egress_cb cb, void *arg, struct err *e)
{
    auto_buf values = {0};
    auto_trust *authority = NULL;
    struct policy p;

    if (policy_decode(&p, m->policy, m->policy_len) < 0)
        return err_set(e, ERR_INTERNAL, "the network policy of %s on disk cannot be read", m->sandbox);
    buf_init(&values, EGRESS_SECRETS_BYTES + SECRETS_ROOM);
    int r = network_secrets(&p, w->node->router->secrets, &values, e);
    if (r == 0 && policy_opens_tls(&p)) {
        authority = trust_authority(w->fd, m->sandbox, e);
        r = authority != NULL ? 0 : -1;
    }
    if (r == 0) {
        auto_free uint8_t *out = mem_alloc(MESSAGE_MAX_BYTES);
        m->secrets = (const uint8_t *)values.data;
        m->secrets_len = values.len;
        m->authority = (const uint8_t *)authority;
        m->authority_len = authority != NULL ? strlen(authority) : 0;
        size_t n = egress_policy_encode(m, out, MESSAGE_MAX_BYTES);
        keep_note(w, m->sandbox, network_note_new(&p));
        egress_call(w->link, type, out, n, fds, nfds, timeout_ms, cb, arg);
        explicit_bzero(out, n);
    }
    if (values.len > 0)
        explicit_bzero(values.data, values.len);
    policy_done(&p);
    return r;
}

struct network_note *network_note_of(const Quicksand__Node__Network *m)
{
    struct policy p;

    if (policy_decode(&p, m->policy.data, m->policy.len) < 0)
        return NULL;
    struct network_note *note = network_note_new(&p);
    policy_done(&p);
    return note;
}

const struct network_note *network_note(struct network *w, const char *sandbox)
{
    struct network_note *note = map_get(&w->notes, sandbox);
    struct egress_policy m;
    struct policy p;
    struct err e;

    if (note != NULL || faccessat(w->fd, sandbox, F_OK, 0) < 0)
        return note;
    auto_free uint8_t *bytes = mem_alloc(FILE_MAX_BYTES);
    if (load_policy(w, sandbox, bytes, &m, &e) < 0 || policy_decode(&p, m.policy, m.policy_len) < 0)
        return NULL;
    note = network_note_new(&p);
    policy_done(&p);
    keep_note(w, sandbox, note);
    return note;
}

void network_trust(struct network *w, const char *sandbox, void (*done)(void *arg, const struct err *e), void *arg)
{
    const struct network_note *note = network_note(w, sandbox);

    if (note != NULL && note->opens_tls)
        trust_place(w->node, w->fd, sandbox, done, arg);
    else
        done(arg, NULL);
}

static void reply_revision(struct op *op, const struct err *failure)
{
    const Quicksand__Node__SetNetworkRequest *rq = (Quicksand__Node__SetNetworkRequest *)op->rq;
    Quicksand__Node__NetworkStatus out = QUICKSAND__NODE__NETWORK_STATUS__INIT;
    auto_free uint8_t *bytes = mem_alloc(FILE_MAX_BYTES);
    struct egress_policy p;
    struct err e;

    if (failure != NULL) {
        op_fail(op, failure);
        return;
    }
    if (load_policy(op->node->network, rq->sandbox_id, bytes, &p, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    out.has_revision = 1;
    out.revision = p.revision;
    op_reply(op, &out.base);
}

static void attached(void *arg, const struct chan_msg *m, const struct err *e)
{
    struct attach *a = arg;

    if (e != NULL && e->code != ERR_GONE)
        log_warn("network-not-attached", "sandbox=%s error=\"%s\"", a->sandbox, e->message);
    if (a->op != NULL)
        a->done(a->op, e);
    free(a->policy);
    free(a->if_follows);
    free(a);
}

static void on_sockets(void *arg, enum monitor_result res, const struct chan_msg *m, const struct err *e)
{
    struct attach *a = arg;
    auto_free uint8_t *bytes = mem_alloc(FILE_MAX_BYTES);
    struct egress_policy p;
    struct err bad;

    if (res == MONITOR_REPLY && (m->type != MON_NETWORK_R || m->nfds != EGRESS_SOCKETS)) {
        err_set(&bad, ERR_INTERNAL, "the monitor's reply has no sockets");
        attached(a, NULL, &bad);
        return;
    }
    if (res != MONITOR_REPLY) {
        err_set(&bad, ERR_GONE, "the sandbox has ended");
        attached(a, NULL, res == MONITOR_ERROR ? e : &bad);
        return;
    }
    /* Read now, not before: another change may have come meanwhile. */
    if (load_policy(a->network, a->sandbox, bytes, &p, &bad) < 0) {
        attached(a, NULL, &bad);
        return;
    }
    network_log_get_totals(a->network->log, a->sandbox, &p.totals);
    if (tell(a->network, EGRESS_ATTACH, &p, m->fds, EGRESS_SOCKETS, EGRESS_MS, attached, a, &bad) < 0)
        attached(a, NULL, &bad);
}

static struct attach *attach_new(struct network *w, const char *sandbox)
{
    struct attach *a = mem_zalloc(sizeof *a);

    a->network = w;
    (void)snprintf(a->sandbox, sizeof a->sandbox, "%s", sandbox);
    return a;
}

static void ask_sockets(struct attach *a)
{
    (void)monitor_call(a->network->node->monitors, a->sandbox, MON_NETWORK, NULL, 0, SOCKETS_MS, on_sockets, a);
}

void network_attach(struct network *w, const char *sandbox)
{
    ask_sockets(attach_new(w, sandbox));
}

/* egress knows nothing yet: it is told of all that live. */
static void on_up(void *arg)
{
    struct network *w = arg;
    int fd = openat(w->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *de;

    if (dir == NULL) {
        fd_close(&fd);
        log_error("network-directory", "error=%s", strerror(errno));
        return;
    }
    while ((de = readdir(dir)) != NULL)
        if (id_is(de->d_name, "sb-"))
            network_attach(w, de->d_name);
    (void)closedir(dir);
}

static bool is_known(const struct network *w, const char *sandbox)
{
    return faccessat(w->fd, sandbox, F_OK, 0) == 0;
}

static void on_decision(struct network *w, const char *sandbox, struct egress_decision *line)
{
    const struct egress_denial *d = &line->about;
    char address[ADDRESS_TEXT];

    network_log_add(w->log, sandbox, line);
    if (line->verdict == POLICY_DENY)
        log_info("denied", "sandbox=%s reason=%s protocol=%s name=%s address=%s port=%u rule=%s count=%u", sandbox,
                 egress_reason_name(d->reason), egress_protocol_name(d->protocol), d->name[0] != '\0' ? d->name : "-",
                 address_text(&d->to, address), d->port, d->rule[0] != '\0' ? d->rule : "-", line->count);
}

/* What is told of a sandbox that has been removed meanwhile is told to nobody. */
static void on_event(void *arg, const struct chan_msg *m)
{
    struct network *w = arg;
    char sandbox[ID_SIZE];
    struct egress_decision d;
    struct egress_totals t;

    if (m->type == EGRESS_DECISION && egress_decision_decode(sandbox, &d, m->data, m->len) == 0 && is_known(w, sandbox))
        on_decision(w, sandbox, &d);
    else if (m->type == EGRESS_TOTALS && egress_totals_decode(sandbox, &t, m->data, m->len) == 0 && is_known(w, sandbox))
        network_log_totals(w->log, sandbox, &t);
}

struct network *network_new(struct node *n, struct err *e)
{
    struct network *w = mem_zalloc(sizeof *w);
    char path[256];

    w->node = n;
    if (mkdirat(n->state_fd, DIRECTORY, 0700) < 0 && errno != EEXIST) {
        err_sys(e, errno, "make directory node/" DIRECTORY);
        free(w);
        return NULL;
    }
    w->fd = openat(n->state_fd, DIRECTORY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->fd < 0) {
        err_sys(e, errno, "open directory node/" DIRECTORY);
        free(w);
        return NULL;
    }
    map_init(&w->notes);
    w->log = network_log_new(w->fd);
    (void)snprintf(path, sizeof path, "%s/egress.sock", n->conf.run_dir);
    w->link = egress_link_new(n->loop, path, on_up, on_event, w);
    return w;
}

void network_free(struct network *w)
{
    if (w == NULL)
        return;
    struct map_iter it = MAP_ITER;
    void *note;
    while (map_next(&w->notes, &it, NULL, &note))
        network_note_free(note);
    map_done(&w->notes);
    egress_link_free(w->link);
    network_log_free(w->log);
    fd_close(&w->fd);
    free(w);
}

/* The bytes that egress gets; the caller frees. */
static uint8_t *message(const char *sandbox, const Quicksand__Node__Network *m, uint64_t revision, size_t *ret_len,
                        struct err *e)
{
    struct egress_policy out = {
        .revision = revision,
        .keep = m->keep,
        .policy = m->policy.data,
        .policy_len = m->policy.len,
        .version = m->version,
        .follows = m->follows,
    };
    struct policy p;

    if (m->name != NULL && strlen(m->name) >= sizeof out.name) {
        err_param(e, ERR_INVALID, "network", "the name of the policy is too long");
        return NULL;
    }
    (void)snprintf(out.name, sizeof out.name, "%s", m->name != NULL ? m->name : "");

    if (m->policy.len > LIMIT_POLICY_BYTES) {
        err_param(e, ERR_TOO_LARGE, "network", "the network policy has %zu bytes, at most %d are accepted",
                  m->policy.len, LIMIT_POLICY_BYTES);
        return NULL;
    }
    if (policy_decode(&p, m->policy.data, m->policy.len) < 0) {
        err_param(e, ERR_INVALID, "network", "the network policy is malformed");
        return NULL;
    }
    policy_done(&p);
    (void)snprintf(out.sandbox, sizeof out.sandbox, "%s", sandbox);
    auto_free uint8_t *bytes = mem_alloc(FILE_MAX_BYTES);
    *ret_len = egress_policy_encode(&out, bytes, FILE_MAX_BYTES);
    if (*ret_len == 0) {
        err_param(e, ERR_TOO_LARGE, "network", "the network policy is too large");
        return NULL;
    }
    return take_ptr(&bytes);
}

static int save(struct network *w, const char *sandbox, const uint8_t *bytes, size_t n, struct err *e)
{
    int r = fd_replace_file(w->fd, sandbox, bytes, n, 0600, false);

    return r < 0 ? err_sys(e, -r, "keep the network policy of %s", sandbox) : 0;
}

int network_save(struct network *w, const char *sandbox, const Quicksand__Node__Network *m, struct err *e)
{
    size_t n;
    auto_free uint8_t *bytes = message(sandbox, m, 1, &n, e);

    return bytes == NULL ? -1 : save(w, sandbox, bytes, n, e);
}

void network_remove(struct network *w, const char *sandbox)
{
    uint8_t out[64];
    int r = unlinkat(w->fd, sandbox, 0);

    network_log_remove(w->log, sandbox);
    network_note_free(map_del(&w->notes, sandbox));
    trust_remove(w->fd, sandbox);
    if (r < 0) {
        if (errno != ENOENT)
            log_warn("policy-not-removed", "sandbox=%s error=%s", sandbox, strerror(errno));
        return;
    }
    egress_call(w->link, EGRESS_DETACH, out, egress_ref_encode(sandbox, out, sizeof out), NULL, 0, EGRESS_MS, NULL, NULL);
}

/* --- operations ------------------------------------------------------------------------------ */

static void on_changed(void *arg, const struct chan_msg *m, const struct err *e)
{
    struct attach *a = arg;

    if (e != NULL && e->code == ERR_NOT_FOUND)
        ask_sockets(a);         /* egress has just come back */
    else
        attached(a, m, e);
}

static int check(const struct network *w, const char *sandbox, struct err *e)
{
    if (call_sandbox(sandbox, e) < 0)
        return -1;
    if (is_known(w, sandbox))
        return 0;
    return err_param(e, ERR_CONFLICT, "network", "the network of sandbox %s is blocked for good", sandbox);
}

/* A policy that somebody else has put there meanwhile is left alone. */
static int check_follows(const struct attach *a, const struct egress_policy *now, struct err *e)
{
    if (a->if_follows == NULL || (now->follows && strcmp(now->name, a->if_follows) == 0))
        return 0;
    return err_set(e, ERR_PRECONDITION, "the sandbox does not follow the policy %s", a->if_follows);
}

static void put_in_force(struct attach *a)
{
    struct network *w = a->network;
    auto_free uint8_t *old = mem_alloc(FILE_MAX_BYTES), *out = mem_alloc(FILE_MAX_BYTES);
    struct egress_policy before, now;
    struct err e;

    if (egress_policy_decode(&now, a->policy, a->policy_len) < 0)
        err_set(&e, ERR_INTERNAL, "the network policy of %s cannot be read", a->sandbox);
    else if (load_policy(w, a->sandbox, old, &before, &e) == 0 && check_follows(a, &before, &e) == 0) {
        now.revision = before.revision + 1;
        size_t n = egress_policy_encode(&now, out, FILE_MAX_BYTES);
        if (save(w, a->sandbox, out, n, &e) == 0) {
            if (tell(w, EGRESS_POLICY, &now, NULL, 0, CHANGE_MS, on_changed, a, &e) == 0)
                return;
            /* It cannot be told, so it is not to be found on the disk later. */
            struct err undo;
            n = egress_policy_encode(&before, out, FILE_MAX_BYTES);
            if (save(w, a->sandbox, out, n, &undo) < 0)
                log_error("policy-not-undone", "sandbox=%s error=\"%s\"", a->sandbox, undo.message);
        }
    }
    attached(a, NULL, &e);
}

static void on_trusted(void *arg, const struct err *e)
{
    struct attach *a = arg;

    if (e != NULL)
        attached(a, NULL, e);
    else
        put_in_force(a);
}

void network_replace(struct op *op, const char *sandbox, const Quicksand__Node__Network *m, const char *if_follows,
                     network_done done)
{
    struct network *w = op->node->network;
    auto_free uint8_t *bytes = NULL;
    struct err e;
    size_t n;

    if (check(w, sandbox, &e) < 0 || (bytes = message(sandbox, m, 1, &n, &e)) == NULL) {
        done(op, &e);
        return;
    }
    struct network_note *note = network_note_of(m);
    bool opens = note != NULL && note->opens_tls;
    network_note_free(note);
    struct attach *a = attach_new(w, sandbox);
    a->op = op;
    a->done = done;
    a->policy = take_ptr(&bytes);
    a->policy_len = n;
    a->if_follows = if_follows != NULL ? mem_strdup(if_follows) : NULL;
    if (opens)
        trust_place(w->node, w->fd, sandbox, on_trusted, a);
    else
        put_in_force(a);
}

/* --- secrets --------------------------------------------------------------------------------- */

static bool names_any(const struct network_note *note, const Quicksand__Node__PutSecretsRequest *rq)
{
    if (rq->replace_all)
        return note->secrets.count > 0;
    for (size_t i = 0; i < rq->n_secrets; i++)
        if (rq->secrets[i]->secret_id != NULL && map_get(&note->secrets, rq->secrets[i]->secret_id) != NULL)
            return true;
    return false;
}

struct putting {
    size_t pending;
};

static void put_one(struct op *op, const struct err *e)
{
    struct putting *p = op->state;

    (void)e;                    /* it is in the log, and made good when egress comes back */
    if (--p->pending == 0)
        op_reply_empty(op);
}

/* The same policy once more, with the values of now: no connection is cut for it. */
static void tell_again(struct op *op, const char *sandbox)
{
    struct network *w = op->node->network;
    struct attach *a = attach_new(w, sandbox);
    auto_free uint8_t *bytes = mem_alloc(FILE_MAX_BYTES);
    struct egress_policy p;
    struct err e;

    a->op = op;
    a->done = put_one;
    if (load_policy(w, sandbox, bytes, &p, &e) == 0) {
        p.keep = true;
        if (tell(w, EGRESS_POLICY, &p, NULL, 0, CHANGE_MS, on_changed, a, &e) == 0)
            return;
    }
    attached(a, NULL, &e);
}

void op_put_secrets(struct op *op)
{
    Quicksand__Node__PutSecretsRequest *rq = (Quicksand__Node__PutSecretsRequest *)op->rq;
    struct network *w = op->node->network;
    struct putting *p = op_state(op, sizeof *p);
    struct map_iter it = MAP_ITER;
    char (*ids)[ID_SIZE] = mem_array(w->notes.count + 1, sizeof *ids);
    const char *sandbox;
    void *note;
    size_t n = 0;

    while (map_next(&w->notes, &it, &sandbox, &note))
        if (names_any(note, rq))
            (void)snprintf(ids[n++], ID_SIZE, "%s", sandbox);
    router_secrets_put(op->node->router->secrets, rq);
    p->pending = n + 1;
    for (size_t i = 0; i < n; i++)
        tell_again(op, ids[i]);
    put_one(op, NULL);
    free(ids);
}

void op_set_network(struct op *op)
{
    const Quicksand__Node__SetNetworkRequest *rq = (Quicksand__Node__SetNetworkRequest *)op->rq;
    struct err e;

    if (rq->network == NULL) {
        err_param(&e, ERR_INVALID, "network", "a policy is missing");
        op_fail(op, &e);
        return;
    }
    network_replace(op, rq->sandbox_id, rq->network, rq->if_follows, reply_revision);
}

static void put_denials(Quicksand__Node__NetworkStatus *out, struct egress_status *s, Quicksand__Node__Denial *rows,
                        Quicksand__Node__Denial **list, char *texts)
{
    for (uint32_t i = 0; i < s->ndenials; i++) {
        struct egress_denial *d = &s->denials[i];
        rows[i] = (Quicksand__Node__Denial)QUICKSAND__NODE__DENIAL__INIT;
        rows[i].has_seq = rows[i].has_when_ms = rows[i].has_port = 1;
        rows[i].seq = d->seq;
        rows[i].when_ms = d->when_ms;
        rows[i].port = d->port;
        rows[i].reason = (char *)(uintptr_t)egress_reason_name(d->reason);
        rows[i].protocol = (char *)(uintptr_t)egress_protocol_name(d->protocol);
        rows[i].address = (char *)(uintptr_t)address_text(&d->to, texts + (size_t)i * ADDRESS_TEXT);
        rows[i].rule = d->rule;
        rows[i].name = d->name;
        list[i] = &rows[i];
    }
    out->n_denials = s->ndenials;
    out->denials = list;
}

static void put_counters(Quicksand__Node__NetworkStatus *out, const struct egress_totals *t)
{
    out->has_sent = out->has_received = out->has_flows = out->has_failed = out->has_queries = out->has_denied = out->has_noted =
        out->has_injected = 1;
    out->sent = t->sent;
    out->received = t->received;
    out->flows = t->flows;
    out->failed = t->failed;
    out->queries = t->queries;
    out->denied = t->denied;
    out->noted = t->noted;
    out->injected = t->injected;
}

static void put_name(Quicksand__Node__NetworkStatus *out, const struct egress_policy *p)
{
    out->has_version = out->has_follows = p->name[0] != '\0';
    out->name = p->name[0] != '\0' ? (char *)(uintptr_t)p->name : NULL;
    out->version = p->version;
    out->follows = p->follows;
}

/* Where egress does not answer, or has forgotten the sandbox because it ended, what it told last counts. */
static void on_network_status(void *arg, const struct chan_msg *m, const struct err *e)
{
    struct op *op = arg;
    const Quicksand__Node__GetNetworkRequest *rq = (Quicksand__Node__GetNetworkRequest *)op->rq;
    Quicksand__Node__NetworkStatus out = QUICKSAND__NODE__NETWORK_STATUS__INIT;
    auto_free struct egress_status *s = mem_zalloc(sizeof *s);
    auto_free Quicksand__Node__Denial *rows = mem_array(EGRESS_DENIALS, sizeof *rows);
    auto_free Quicksand__Node__Denial **list = mem_array(EGRESS_DENIALS, sizeof *list);
    auto_free char *texts = mem_array(EGRESS_DENIALS, ADDRESS_TEXT);
    auto_free uint8_t *bytes = mem_alloc(FILE_MAX_BYTES);
    struct egress_policy p;
    struct err bad;

    if (load_policy(op->node->network, rq->sandbox_id, bytes, &p, &bad) < 0) {
        op_fail(op, &bad);
        return;
    }
    if (e == NULL && m->type == EGRESS_STATUS_R && egress_status_decode(s, m->data, m->len) == 0) {
        out.revision = s->revision;
        out.flows_now = s->flows_now;
        put_denials(&out, s, rows, list, texts);
    } else {
        out.revision = p.revision;
        network_log_get_totals(op->node->network->log, rq->sandbox_id, &s->totals);
    }
    out.has_revision = out.has_flows_now = 1;
    put_counters(&out, &s->totals);
    put_name(&out, &p);
    out.has_policy = 1;
    out.policy = (ProtobufCBinaryData){p.policy_len, (uint8_t *)(uintptr_t)p.policy};
    op_reply(op, &out.base);
}

void op_get_network(struct op *op)
{
    const Quicksand__Node__GetNetworkRequest *rq = (Quicksand__Node__GetNetworkRequest *)op->rq;
    uint8_t out[64];
    struct err e;

    if (check(op->node->network, rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    egress_call(op->node->network->link, EGRESS_STATUS, out, egress_ref_encode(rq->sandbox_id, out, sizeof out), NULL, 0,
                STATUS_MS, on_network_status, op);
}

void op_network_log(struct op *op)
{
    const Quicksand__Node__NetworkLogRequest *rq = (Quicksand__Node__NetworkLogRequest *)op->rq;
    struct err e;

    if (check(op->node->network, rq->sandbox_id, &e) < 0)
        op_fail(op, &e);
    else
        network_log_answer(op->node->network->log, op);
}
