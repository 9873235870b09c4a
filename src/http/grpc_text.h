/*
 * grpc_text.h - the texts of gRPC: timeouts, percent encoding, status mapping
 */
#ifndef QS_HTTP_GRPC_TEXT_H
#define QS_HTTP_GRPC_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "http/grpc.h"

/* "100m" and the like in milliseconds, rounded up; -1 if malformed. */
int64_t grpc_timeout_parse(const char *text);
void grpc_timeout_format(uint64_t timeout_ms, char *out, size_t size);
/* Percent-encodes into out, cut at a whole character; returns out. */
const char *grpc_encode(const char *text, char *out, size_t size);
const char *grpc_decode(const char *text, char *out, size_t size);
enum grpc_status grpc_status_from_http(int status);
enum grpc_status grpc_status_from_h2(uint32_t code);
enum err_code grpc_err_code(enum grpc_status status);

#endif
