/*
 * proto_nul.h - texts of a protobuf message that a C string cannot hold
 *
 * protobuf-c gives a string field as a C string, which ends at the first NUL: what a peer wrote behind it would be lost
 * without a word. So whoever decodes a peer's message asks here first. Called by node/call.c and api/modal/mcall.c.
 */
#ifndef QS_HTTP_PROTO_NUL_H
#define QS_HTTP_PROTO_NUL_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* The name of the first string field, at any depth, that has a NUL in it; NULL if there is none. The message may be malformed. */
const char *proto_nul_field(const ProtobufCMessageDescriptor *d, const void *p, size_t n);

#endif
