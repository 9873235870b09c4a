/*
 * service.h - the methods of quicksand.node.Node
 */
#ifndef QS_NODE_SERVICE_H
#define QS_NODE_SERVICE_H

#include "http/http.h"

/* http_request_cb; arg is the struct node. */
void service_request(struct http_stream *st, const struct http_request *rq, void *arg);

#endif
