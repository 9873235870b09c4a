/*
 * glob.h - patterns of COPY and of ignore files
 *
 * Pure text: called by image/copy.c and the command line; fuzzed.
 */
#ifndef QS_BASE_GLOB_H
#define QS_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* '*' and '?' match within a part of a path, [a-z] and [^a-z] a character, '\' takes the next as it is, and a part "**" any
 * number of parts, none included. */
bool glob_match(const char *pattern, const char *path);
bool glob_is_pattern(const char *text);

/* The lines of an ignore file: comments, '!', a leading '/'. A pattern counts for what is below a match too; the last one that
 * matches decides. */
bool glob_is_ignored(const char *lines, size_t n, const char *path);
/* Some line begins with '!': below an ignored directory something may not be ignored. */
bool glob_has_exceptions(const char *lines, size_t n);

#endif
