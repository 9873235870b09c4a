/*
 * slot_rules.h - the packet rules of a sandbox's network namespace, as one netlink batch
 *
 * The bytes hold nothing that differs from one namespace to the next, so they are built once (by libnftnl) and sent
 * again for every slot: no program is started, nothing is parsed.
 */
#ifndef QS_KEEPER_RUNTIME_SLOT_RULES_H
#define QS_KEEPER_RUNTIME_SLOT_RULES_H

#include <stddef.h>
#include <stdint.h>

int slot_rules_build(uint8_t *out, size_t size, size_t *ret_len);
int slot_rules_load(const uint8_t *rules, size_t len);  /* into the caller's namespace; 0 or -errno */

#endif
