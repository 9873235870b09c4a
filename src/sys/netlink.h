/*
 * netlink.h - the few network settings a namespace needs, by raw rtnetlink
 */
#ifndef QS_SYS_NETLINK_H
#define QS_SYS_NETLINK_H

/* Brings up the loopback interface of the caller's network namespace. 0 or -errno. */
int netlink_loopback_up(void);

/*
 * Gives loopback an address of each family (in text form) and makes every address of the world local, with those as
 * source. Where the kernel has IPv6 turned off, only IPv4. 0 or -errno.
 */
int netlink_catch_all(const char *self4, const char *self6);

#endif
