/*
 * hello.h - the first bytes of a TLS connection: which name is asked for
 *
 * A pure function over a stranger's bytes; fuzzed.
 */
#ifndef QS_EGRESS_HELLO_H
#define QS_EGRESS_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/policy.h"

#define HELLO_MAX (64 * 1024)       /* bytes looked at; post-quantum greetings have about 2 KiB */

enum hello_result {
    HELLO_MORE,                     /* not complete yet */
    HELLO_OK,
    HELLO_BAD,                      /* no ClientHello, or one that cannot be */
};

struct hello {
    bool has_name;
    bool name_is_bad;               /* an address, or what cannot be a host name */
    bool has_ech;                   /* an encrypted ClientHello, or what looks like one */
    char name[POLICY_DOMAIN_MAX + 1];   /* normalized */
};

enum hello_result hello_parse(const uint8_t *p, size_t n, struct hello *ret);

#endif
