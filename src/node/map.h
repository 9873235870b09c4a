/*
 * map.h - records of the monitors as messages of node.proto, and failures of a start as errors
 */
#ifndef QS_NODE_MAP_H
#define QS_NODE_MAP_H

#include "base/err.h"
#include "ipc/record.h"
#include "node.pb-c.h"

/* The message borrows from the record. */
void map_exec(const struct exec_record *r, Quicksand__Node__Exec *ret);
/* entry may be NULL; ret borrows from all. */
void map_sandbox(const struct sandbox_record *r, Quicksand__Node__Usage *usage,
                 Quicksand__Node__Exec *entry, Quicksand__Node__Sandbox *ret);

/* Fills *e with why an exec in state EXEC_FAILED failed; `program` and `cwd` are for the message. */
void map_start_error(const struct exec_record *r, const char *program, const char *cwd,
                     struct err *e);

#endif
