/*
 * range.h - the ports of the machine that tunnels may have
 *
 * All are bound at start, because later the filter lets the node make no such socket; a port listens only while a tunnel
 * has it.
 */
#ifndef QS_NODE_TUNNEL_RANGE_H
#define QS_NODE_TUNNEL_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "loop/loop.h"
#include "net/listen.h"

struct range_port {
    uint16_t number;
    int fd;                     /* bound */
    bool is_taken;
    struct net_listener *listener;      /* on a copy of fd; NULL: does not listen */
};

struct range {
    size_t n, next;
    struct range_port *ports;
};

/* "127.0.0.1:7100-7163", numeric. Ports that others have are left out; "" is the empty range. */
int range_open(struct range *r, const char *text, struct err *e);
void range_close(struct range *r);
/*
 * A free port, or the one of that number (0 = any) if it is free, that listens now. NULL with ERR_CAPACITY. They are given out
 * in turn: who still knows a number should not soon reach another sandbox by it.
 */
struct range_port *range_take(struct range *r, uint16_t number, struct loop *l, net_accept_cb cb, void *arg, struct err *e);
void range_give(struct range_port *p);  /* accepts NULL */

#endif
