/*
 * log.h - one event, one line: time, level, role, event, key=value fields
 *
 * Only role code logs; libraries return errors. Text that came from a peer goes through
 * log_escape() first. Lines go to stderr (journald or a file decides what becomes of them).
 */
#ifndef QS_BASE_LOG_H
#define QS_BASE_LOG_H

#include <stddef.h>

enum log_level { LOG_L_ERROR, LOG_L_WARN, LOG_L_INFO, LOG_L_DEBUG };

void log_init(const char *role, enum log_level level);
/* "error", "warn", "info" or "debug"; anything else is info. */
enum log_level log_level_from_name(const char *name);
void log_write(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Printable, without spaces or quotes, cut to the size of out. Returns out. */
const char *log_escape(const char *text, char *out, size_t size);

#define log_error(event, ...) log_write(LOG_L_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...) log_write(LOG_L_WARN, event, __VA_ARGS__)
#define log_info(event, ...) log_write(LOG_L_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) log_write(LOG_L_DEBUG, event, __VA_ARGS__)

#endif
