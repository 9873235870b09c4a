/*
 * table.c - the table of RPCs
 */
#include "api/modal/mcall.h"
#include "base/mem.h"

#define RPC(name, type, fn, support, scope, note) \
    {#name, &modal__client__##type##__descriptor, fn, SUPPORT_##support, scope, note},
#define RPC_NONE(name, note) {#name, NULL, NULL, SUPPORT_NONE, "", note},

const struct rpc rpcs[] = {
#include "api/modal/rpcs.def"
};
const size_t nrpcs = array_len(rpcs);
