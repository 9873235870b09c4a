/*
 * digest.h - the one digest that a protocol asks for
 */
#ifndef QS_NET_DIGEST_H
#define QS_NET_DIGEST_H

#include <stddef.h>

#define NET_SHA1_BASE64_SIZE 29

/* SHA-1 in base64, as the WebSocket handshake wants it; no security depends on it. 0 or -EIO. */
int net_sha1_base64(const void *p, size_t n, char out[NET_SHA1_BASE64_SIZE]);

#endif
