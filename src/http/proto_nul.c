/*
 * proto_nul.c - walks a message as it is on the wire along its descriptor
 */
#include "http/proto_nul.h"

#include <string.h>

/* Deeper than any message of ours; what is deeper is not looked at, and protobuf-c reads no message of ours that deep. */
#define DEPTH_MAX 32

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct cursor {
    const unsigned char *p;
    const unsigned char *end;
};

static size_t left(const struct cursor *c)
{
    return (size_t)(c->end - c->p);
}

/* 0, or -1 at the end or after ten bytes. */
static int varint(struct cursor *c, uint64_t *ret)
{
    *ret = 0;
    for (unsigned shift = 0; shift < 70 && c->p < c->end; shift += 7) {
        unsigned char byte = *c->p++;
        if (shift < 64)
            *ret |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return 0;
    }
    return -1;
}

/* A value that is no text; -1 for what is none of the wire's kinds. */
static int pass_number(struct cursor *c, int wire)
{
    uint64_t value;
    size_t n = wire == WIRE_64 ? 8 : 4;

    if (wire == WIRE_VARINT)
        return varint(c, &value);
    if ((wire != WIRE_64 && wire != WIRE_32) || left(c) < n)
        return -1;
    c->p += n;
    return 0;
}

static const char *walk(const ProtobufCMessageDescriptor *d, const void *p, size_t n, int depth)
{
    struct cursor c = {p, (const unsigned char *)p + n};
    uint64_t tag, value;

    while (c.p < c.end && varint(&c, &tag) == 0) {
        if ((tag & 7) != WIRE_BYTES) {
            if (pass_number(&c, (int)(tag & 7)) < 0)
                return NULL;
            continue;
        }
        if (varint(&c, &value) < 0 || value > left(&c))
            return NULL;
        const unsigned char *at = c.p;
        c.p += value;
        if (tag >> 3 > UINT32_MAX)
            continue;
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field(d, (unsigned)(tag >> 3));
        if (f == NULL)
            continue;
        if (f->type == PROTOBUF_C_TYPE_STRING && value > 0 &&
            memchr(at, '\0', (size_t)value) != NULL)
            return f->name;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && depth < DEPTH_MAX) {
            const char *inner = walk(f->descriptor, at, (size_t)value, depth + 1);
            if (inner != NULL)
                return inner;
        }
    }
    return NULL;
}

const char *proto_nul_field(const ProtobufCMessageDescriptor *d, const void *p, size_t n)
{
    return n > 0 ? walk(d, p, n, 0) : NULL;
}
