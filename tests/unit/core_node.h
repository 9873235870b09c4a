/*
 * core_node.h - a played node for the tests of core: what it was asked, what it answers
 */
#ifndef QS_TESTS_CORE_NODE_H
#define QS_TESTS_CORE_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "loop/loop.h"

struct played {
    char id[ID_SIZE];
    uint32_t state;                 /* of the protocol */
    uint32_t reason;
    int32_t code, signal;
    int64_t deadline_ms;
    uint64_t idle_ms;
    bool ignores_terminate;
};

struct played_node {
    struct played boxes[512];
    size_t n;
    /* knobs */
    enum err_code create_error;     /* ERR_OK = works */
    enum err_code any_error;        /* for every method */
    uint64_t create_delay_ms;
    /* what came */
    unsigned creates, destroys, terminates, updates, lists, gets, layer_deletes;
    char last_env[256];             /* of a Create: joined by ' ' */
    char last_argv[256];
    char last_hostname[64];
    char last_user[64];
    char last_actor[64];
};

extern struct played_node node;

void node_start(struct loop *l, const char *address);
void node_stop(void);
struct played *node_find(const char *id);
struct played *node_add(const char *id, uint32_t state);
void node_drop(const char *id);
void node_end(const char *id, uint32_t reason, int32_t code);

#endif
