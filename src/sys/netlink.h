/*
 * netlink.h - the few network settings a namespace needs, by raw rtnetlink
 */
#ifndef QS_SYS_NETLINK_H
#define QS_SYS_NETLINK_H

/* Brings up the loopback interface of the caller's network namespace. 0 or -errno. */
int netlink_loopback_up(void);

#endif
