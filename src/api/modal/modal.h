/*
 * modal.h - the dialect of Modal's clients: modal.client.ModalClient over core
 *
 * Called by control for gRPC requests. The data plane, TaskCommandRouter, is the node's. What is served and how far is said in
 * rpcs.def, from which calls are dispatched and docs/modal-compatibility.md is made.
 */
#ifndef QS_API_MODAL_MODAL_H
#define QS_API_MODAL_MODAL_H

#include "core/core.h"
#include "core/vault.h"

struct modal;

struct modal_config {
    const char *router_listen;      /* of the node; its port is the router's */
    const char *router_host;        /* "" = the host of the client's :authority */
};

/* All borrowed; config during the call. */
struct modal *modal_new(struct core *c, struct vault *v, const struct modal_config *conf, struct err *e);
void modal_free(struct modal *m);   /* after the server: no call is left. Accepts NULL */
/* Is it one for modal_handle: gRPC, or a transfer of a blob? */
bool modal_is_request(const struct http_request *rq);
void modal_handle(struct modal *m, struct http_stream *st, const struct http_request *rq);

#endif
