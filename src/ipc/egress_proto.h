/*
 * egress_proto.h - node -> egress, over egress.sock
 *
 * Sandboxes have loopback alone today, so there is nothing to decide yet; what stands is the link and its greeting.
 */
#ifndef QS_IPC_EGRESS_PROTO_H
#define QS_IPC_EGRESS_PROTO_H

enum egress_type {
    EGRESS_HELLO = 1,   /* node -> egress: empty */
    EGRESS_HELLO_R,     /* egress -> node, same tag: u32 number of sandboxes it serves, str version */
};

#endif
