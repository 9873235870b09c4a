/*
 * network_tell.c - a sandbox's sockets and policy on their way to egress, with values of secrets and its authority
 */
#include "node/network_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "ipc/policy_wire.h"
#include "node/modal/router.h"
#include "node/monitor_link.h"
#include "node/trust.h"

#define MESSAGE_MAX_BYTES (NETWORK_FILE_MAX + EGRESS_SECRETS_BYTES + EGRESS_AUTHORITY_BYTES)
#define SECRETS_ROOM 4096       /* what buf_reserve asks for ahead */
#define SOCKETS_MS 10000        /* the monitor answers at once */
#define EGRESS_MS 10000

int network_tell(struct network *w, enum egress_type type, struct egress_policy *m, const int *fds, int nfds, uint64_t timeout_ms,
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
        network_keep_note(w, m->sandbox, network_note_new(&p));
        egress_call(w->link, type, out, n, fds, nfds, timeout_ms, cb, arg);
        explicit_bzero(out, n);
    }
    if (values.len > 0)
        explicit_bzero(values.data, values.len);
    policy_done(&p);
    return r;
}

void attach_done(void *arg, const struct chan_msg *m, const struct err *e)
{
    struct attach *a = arg;

    if (e != NULL && e->code != ERR_GONE)
        log_warn("network-not-attached", "sandbox=%s error=\"%s\"", a->sandbox, e->message);
    if (a->is_handing_over)
        network_note_problem(a->network, a->sandbox, e != NULL && e->code != ERR_GONE ? e->message : NULL);
    if (a->op != NULL)
        a->done(a->op, e);
    free(a->policy);
    free(a->if_follows);
    free(a);
}

static void on_sockets(void *arg, enum monitor_result res, const struct chan_msg *m, const struct err *e)
{
    struct attach *a = arg;
    auto_free uint8_t *bytes = mem_alloc(NETWORK_FILE_MAX);
    struct egress_policy p;
    struct err bad;

    if (res == MONITOR_REPLY && (m->type != MON_NETWORK_R || m->nfds != EGRESS_SOCKETS)) {
        /* It lives as long as its sandbox, whatever was installed since. */
        err_set(
            &bad, ERR_UNSUPPORTED,
            "the sandbox's monitor is of another version: it has %d sockets of the %d that this version "
            "needs, so the sandbox has no network; "
            "make it again",
            m->type == MON_NETWORK_R ? m->nfds : 0, EGRESS_SOCKETS);
        attach_done(a, NULL, &bad);
        return;
    }
    if (res != MONITOR_REPLY) {
        err_set(&bad, ERR_GONE, "the sandbox has ended");
        attach_done(a, NULL, res == MONITOR_ERROR ? e : &bad);
        return;
    }
    /* Read now, not before: another change may have come meanwhile. */
    if (network_load(a->network, a->sandbox, bytes, &p, &bad) < 0) {
        attach_done(a, NULL, &bad);
        return;
    }
    network_log_get_totals(a->network->log, a->sandbox, &p.totals);
    if (network_tell(a->network, EGRESS_ATTACH, &p, m->fds, EGRESS_SOCKETS, EGRESS_MS, attach_done, a, &bad) < 0)
        attach_done(a, NULL, &bad);
}

struct attach *attach_new(struct network *w, const char *sandbox)
{
    struct attach *a = mem_zalloc(sizeof *a);

    a->network = w;
    (void)snprintf(a->sandbox, sizeof a->sandbox, "%s", sandbox);
    return a;
}

void attach_sockets(struct attach *a)
{
    a->is_handing_over = true;
    (void)monitor_call(a->network->node->monitors, a->sandbox, MON_NETWORK, NULL, 0, SOCKETS_MS, on_sockets, a);
}

void network_attach(struct network *w, const char *sandbox)
{
    attach_sockets(attach_new(w, sandbox));
}
