/*
 * client.h - what grpc_client.c needs of a client beyond http.h
 */
#ifndef QS_HTTP_CLIENT_H
#define QS_HTTP_CLIENT_H

#include "http/http.h"

struct loop *http_client_loop(const struct http_client *c);

#endif
