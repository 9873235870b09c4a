/*
 * system_log.h - lines of the system stream of logs: what the network policy of a sandbox decided
 */
#ifndef QS_API_MODAL_SYSTEM_LOG_H
#define QS_API_MODAL_SYSTEM_LOG_H

#include "base/buf.h"
#include "node.pb-c.h"

/* Adds the text of a decision, as UTF-8 with a newline. */
void system_log_text(const Quicksand__Node__Decision *d, struct buf *out);

#endif
