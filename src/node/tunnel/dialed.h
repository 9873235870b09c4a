/*
 * dialed.h - the socket in a monitor's answer to MON_DIAL
 */
#ifndef QS_NODE_TUNNEL_DIALED_H
#define QS_NODE_TUNNEL_DIALED_H

#include "ipc/channel.h"

/* A copy of the descriptor, non-blocking, if it is what the answer must have: a TCP socket. Else -1. */
int dialed_socket(const struct chan_msg *m);

#endif
