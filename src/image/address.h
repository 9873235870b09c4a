/*
 * address.h - which addresses a registry may not send us to
 */
#ifndef QS_IMAGE_ADDRESS_H
#define QS_IMAGE_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* Loopback, private, link-local, shared, benchmark, multicast and reserved ones, also inside IPv6 forms of IPv4 addresses;
 * and every family that is neither. */
bool address_is_private(const struct sockaddr *sa);

#endif
