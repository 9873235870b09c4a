/*
 * grpc_frame_fuzz.c - gRPC message framing, timeouts and percent encoding
 *
 * The first byte is the size of the pieces: the messages must be the same as in one piece.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "http/grpc_frame.h"
#include "http/grpc_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum;

static bool on_frame(void *arg, const void *p, size_t n)
{
    const uint8_t *bytes = p;

    sum = sum * 31 + n;
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ bytes[i]) * 1099511628211ULL;
    return true;
}

static uint64_t feed(const uint8_t *p, size_t n, size_t piece)
{
    struct grpc_frames f = {0};
    enum grpc_frame_result r = GRPC_FRAME_OK;
    size_t free_len = 0;

    sum = 0;
    for (size_t at = 0; at < n && r == GRPC_FRAME_OK; at += piece)
        r = grpc_frames_feed(&f, p + at, n - at < piece ? n - at : piece, &free_len, on_frame, NULL);
    if (free_len > n)
        abort();
    bool is_partial = grpc_frames_is_partial(&f);
    grpc_frames_done(&f);
    return sum * 31 + (uint64_t)r * 2 + (r == GRPC_FRAME_OK && is_partial);
}

static void texts(const uint8_t *data, size_t size)
{
    char out[64], back[64];
    auto_free char *text = mem_strndup((const char *)data, size);

    (void)grpc_timeout_parse(text);
    (void)grpc_decode(text, back, sizeof back);
    /* Encoding and decoding gives the text, as far as it fits. */
    (void)grpc_encode(text, out, sizeof out);
    (void)grpc_decode(out, back, sizeof back);
    if (strncmp(back, text, strlen(back)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t piece = data[0] == 0 ? 1 : data[0];
    if (feed(data + 1, size - 1, piece) != feed(data + 1, size - 1, size))
        abort();
    texts(data, size);
    return 0;
}
