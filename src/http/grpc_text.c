/*
 * grpc_text.c - the texts of gRPC
 */
#include "http/grpc_text.h"

#include <inttypes.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>

int64_t grpc_timeout_parse(const char *text)
{
    int64_t v = 0;
    size_t n = strspn(text, "0123456789");

    if (n == 0 || n > 8 || text[n] == '\0' || text[n + 1] != '\0')
        return -1;
    for (size_t i = 0; i < n; i++)
        v = v * 10 + (text[i] - '0');
    switch (text[n]) {
    case 'H':
        return v * 3600 * 1000;
    case 'M':
        return v * 60 * 1000;
    case 'S':
        return v * 1000;
    case 'm':
        return v;
    case 'u':
        return (v + 999) / 1000;
    case 'n':
        return (v + 999999) / 1000000;
    default:
        return -1;
    }
}

void grpc_timeout_format(uint64_t timeout_ms, char *out, size_t size)
{
    if (timeout_ms <= 99999999)
        (void)snprintf(out, size, "%" PRIu64 "m", timeout_ms);
    else if (timeout_ms / 1000 < 99999999)
        (void)snprintf(out, size, "%" PRIu64 "S", timeout_ms / 1000 + 1);
    else
        (void)snprintf(out, size, "99999999S");
}

const char *grpc_encode(const char *text, char *out, size_t size)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t at = 0;

    for (; *text != '\0'; text++) {
        unsigned char ch = (unsigned char)*text;
        bool is_plain = ch >= 0x20 && ch <= 0x7e && ch != '%';
        if (at + (is_plain ? 1 : 3) >= size)
            break;
        if (is_plain) {
            out[at++] = (char)ch;
        } else {
            out[at++] = '%';
            out[at++] = hex[ch >> 4];
            out[at++] = hex[ch & 15];
        }
    }
    out[at] = '\0';
    return out;
}

static int hex_value(char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    if (ch >= 'A' && ch <= 'F')
        return ch - 'A' + 10;
    if (ch >= 'a' && ch <= 'f')
        return ch - 'a' + 10;
    return -1;
}

const char *grpc_decode(const char *text, char *out, size_t size)
{
    size_t at = 0;

    while (*text != '\0' && at + 1 < size) {
        int high = text[0] == '%' ? hex_value(text[1]) : -1;
        int low = high >= 0 ? hex_value(text[2]) : -1;
        int ch = low >= 0 ? high * 16 + low : (unsigned char)*text;
        text += low >= 0 ? 3 : 1;
        /* A message ends up in logs and terminals: no NUL. */
        out[at++] = ch != 0 ? (char)ch : '?';
    }
    out[at] = '\0';
    return out;
}

enum grpc_status grpc_status_from_http(int status)
{
    switch (status) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

enum grpc_status grpc_status_from_h2(uint32_t code)
{
    switch (code) {
    case NGHTTP2_REFUSED_STREAM:
        return GRPC_UNAVAILABLE;
    case NGHTTP2_CANCEL:
        return GRPC_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
        return GRPC_RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY:
        return GRPC_PERMISSION_DENIED;
    default:
        return GRPC_INTERNAL;
    }
}

enum err_code grpc_err_code(enum grpc_status status)
{
    switch (status) {
    case GRPC_OK:
        return ERR_OK;
    case GRPC_INVALID_ARGUMENT:
        return ERR_INVALID;
    case GRPC_DEADLINE_EXCEEDED:
        return ERR_TIMEOUT;
    case GRPC_NOT_FOUND:
        return ERR_NOT_FOUND;
    case GRPC_ALREADY_EXISTS:
        return ERR_EXISTS;
    case GRPC_PERMISSION_DENIED:
        return ERR_DENIED;
    case GRPC_RESOURCE_EXHAUSTED:
        return ERR_LIMIT;
    case GRPC_FAILED_PRECONDITION:
    case GRPC_ABORTED:
        return ERR_CONFLICT;
    case GRPC_OUT_OF_RANGE:
        return ERR_RANGE;
    case GRPC_UNIMPLEMENTED:
        return ERR_UNSUPPORTED;
    case GRPC_CANCELLED:
    case GRPC_UNAVAILABLE:
        return ERR_UNAVAILABLE;
    case GRPC_UNAUTHENTICATED:
        return ERR_UNAUTHENTICATED;
    case GRPC_UNKNOWN:
    case GRPC_INTERNAL:
    case GRPC_DATA_LOSS:
        break;
    }
    return ERR_INTERNAL;
}
