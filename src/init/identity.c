/*
 * identity.c - ids that say which machine this is, one for each sandbox
 *
 * Called while the slot is prepared. Random, as systemd makes them: a UUID of version 4.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "init/init.h"
#include "sys/fd.h"

int identity_file(const char *name, bool uuid, struct fault *f)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char id[16];
    char text[40];
    size_t n = 0;

    if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        return fault_set(f, "random bytes");
    id[6] = (unsigned char)((id[6] & 0x0f) | 0x40);
    id[8] = (unsigned char)((id[8] & 0x3f) | 0x80);
    for (size_t i = 0; i < sizeof id; i++) {
        if (uuid && (i == 4 || i == 6 || i == 8 || i == 10))
            text[n++] = '-';
        text[n++] = digits[id[i] >> 4];
        text[n++] = digits[id[i] & 15];
    }
    text[n++] = '\n';
    auto_close int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    int r = fd < 0 ? -errno : fd_write_all(fd, text, n);
    if (r < 0) {
        errno = -r;
        return fault_set(f, name);
    }
    return 0;
}
