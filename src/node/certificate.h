/*
 * certificate.h - what the node shows its clients: the command router's and tunnels'
 */
#ifndef QS_NODE_CERTIFICATE_H
#define QS_NODE_CERTIFICATE_H

#include "node/node.h"

/* PEM files of the API's certificate if we may read its key, so that clients need to trust one alone; else of one signed by
 * itself, which is made when it is missing. */
int certificate_files(const struct node *n, char *cert, char *key, size_t size, struct err *e);

#endif
