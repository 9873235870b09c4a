/*
 * lines.c - the lines of a tenant's file, through one fixed buffer
 *
 * Used for passwd and group, by PID 1 and by the file helper.
 */
#include "init/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/fd.h"

int lines_open(struct lines *l, const char *path)
{
    struct stat st;

    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    l->fd = take_fd(&fd);
    l->at = l->end = l->total = 0;
    l->eof = false;
    return 0;
}

static void fill(struct lines *l)
{
    memmove(l->buffer, l->buffer + l->at, l->end - l->at);
    l->end -= l->at;
    l->at = 0;
    ssize_t n = read(l->fd, l->buffer + l->end, sizeof l->buffer - 1 - l->end);
    if (n <= 0 || l->total > LINES_FILE_MAX) {
        l->eof = true;
        return;
    }
    l->end += (size_t)n;
    l->total += (size_t)n;
}

/* Drops input up to and including the next newline. */
static void skip_rest(struct lines *l)
{
    for (;;) {
        char *nl = memchr(l->buffer + l->at, '\n', l->end - l->at);
        if (nl != NULL) {
            l->at = (size_t)(nl - l->buffer) + 1;
            return;
        }
        l->at = l->end;
        if (l->eof)
            return;
        fill(l);
    }
}

char *lines_next(struct lines *l)
{
    for (;;) {
        char *start = l->buffer + l->at;
        char *nl = memchr(start, '\n', l->end - l->at);
        if (nl != NULL) {
            *nl = '\0';
            l->at = (size_t)(nl - l->buffer) + 1;
            return start;
        }
        if (l->eof) {
            if (l->at == l->end)
                return NULL;
            l->buffer[l->end] = '\0';
            l->at = l->end;
            return start;
        }
        if (l->end - l->at == sizeof l->buffer - 1) {
            /* Kept aside, because reading its rest away reuses the buffer. */
            static char cut[LINES_BUFFER];
            memcpy(cut, start, l->end - l->at);
            cut[l->end - l->at] = '\0';
            l->at = l->end;
            skip_rest(l);
            return cut;
        }
        fill(l);
    }
}

void lines_close(struct lines *l)
{
    fd_close(&l->fd);
}
