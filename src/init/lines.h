/*
 * lines.h - the lines of a tenant's file, through one fixed buffer
 */
#ifndef QS_INIT_LINES_H
#define QS_INIT_LINES_H

#include <stdbool.h>
#include <stddef.h>

#define LINES_BUFFER 8192
#define LINES_FILE_MAX (4 * 1024 * 1024)    /* nothing is read past it */

struct lines {
    int fd;
    size_t at, end;                         /* unread part of `buffer` */
    size_t total;
    bool eof;
    char buffer[LINES_BUFFER];
};

/* 0 or -errno; -EINVAL if it is not a regular file (a FIFO would block, a device would not end). */
int lines_open(struct lines *l, const char *path);
/* The next line, NUL-terminated, valid until the next call; NULL at the end. A line that does not fit is cut. */
char *lines_next(struct lines *l);
void lines_close(struct lines *l);

#endif
