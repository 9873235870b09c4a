/*
 * tty.c - terminals of others: typing into them, taking them, reading them
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "escape.h"

/* A new terminal; nobody's controlling one. */
static int terminal(int *ret_master)
{
    int unlock = 0, n;
    char path[32];

    *ret_master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*ret_master < 0 || ioctl(*ret_master, TIOCSPTLCK, &unlock) < 0 || ioctl(*ret_master, TIOCGPTN, &n) < 0)
        return -1;
    snprintf(path, sizeof path, "/dev/pts/%d", n);
    return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

/* One that is not ours: real root may. */
static int type_other(const struct ctx *c)
{
    int master, fd = terminal(&master);

    (void)c;
    return fd < 0 ? -errno : outcome(ioctl(fd, TIOCSTI, "x"));
}

/* One's own controlling terminal: what is typed there is read by the shell that comes after. */
static int type_own(const struct ctx *c)
{
    int master, fd = terminal(&master);

    (void)c;
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0)
        return fd < 0 ? -errno : -ENOTSUP;
    return outcome(ioctl(fd, TIOCSTI, "x"));
}

/* The same call with bits above the 32 that the kernel looks at. */
static int type_hidden(const struct ctx *c)
{
    int master, fd = terminal(&master);

    (void)c;
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0)
        return fd < 0 ? -errno : -ENOTSUP;
    return outcome(syscall(SYS_ioctl, fd, 0x100000000ul | TIOCSTI, "x"));
}

/* The controlling terminal of another session. */
static int steal(const struct ctx *c)
{
    int master, fd = terminal(&master), fds[2];
    char told;

    (void)c;
    if (fd < 0 || pipe(fds) < 0)
        return -errno;
    if (fork_bound() == 0) {
        (void)setsid();
        (void)ioctl(fd, TIOCSCTTY, 0);
        (void)!write(fds[1], "x", 1);
        (void)pause();
        _exit(0);
    }
    (void)!read(fds[0], &told, 1);
    return outcome(ioctl(fd, TIOCSCTTY, 1));
}

static int hang_up(const struct ctx *c)
{
    int master, fd = terminal(&master);

    (void)c;
    return fd < 0 ? -errno : outcome(ioctl(fd, 0x5437 /* TIOCVHANGUP */));
}

static int selection(const struct ctx *c)
{
    int master, fd = terminal(&master);
    char what[2] = {3 /* paste */, 0};

    (void)c;
    return fd < 0 ? -errno : outcome(ioctl(fd, TIOCLINUX, what));
}

static int line_discipline(const struct ctx *c)
{
    int master, fd = terminal(&master), number = 0;

    (void)c;
    /* The usual one: the control would have the host load another. */
    return fd < 0 ? -errno : outcome(ioctl(fd, TIOCSETD, &number));
}

static int console(const struct ctx *c)
{
    (void)c;
    return open_outcome("/dev/console", O_WRONLY | O_NOCTTY);
}

static int screen(const struct ctx *c)
{
    (void)c;
    return open_outcome("/dev/tty0", O_WRONLY | O_NOCTTY);
}

/* Terminals of the host have numbers in the host's devpts; in the control one lies beside us. */
static int list_others(const struct ctx *c)
{
    int found = 0, master = -1;
    char path[32];

    if (c->is_control && terminal(&master) < 0)
        return -ENOTSUP;
    for (int i = 0; i < 64 && found == 0; i++) {
        snprintf(path, sizeof path, "/dev/pts/%d", i);
        found = open_outcome(path, O_RDONLY | O_NOCTTY) == 0;
    }
    return found ? 0 : SEEN_NOTHING;
}

const struct attempt tty_table[] = {
    {"tty-type-other", "type into a terminal that is not one's own (TIOCSTI)", "EPERM", NULL, type_other, 0},
    {"tty-type-own", "type into one's own terminal (TIOCSTI)", "EPERM", NULL, type_own, 0},
    {"tty-type-hidden", "TIOCSTI with bits that the kernel drops", "EPERM", NULL, type_hidden, 0},
    {"tty-steal", "take the controlling terminal of another session", "EPERM", NULL, steal, 0},
    {"tty-hang-up", "hang a terminal up", "EPERM", NULL, hang_up, 0},
    {"tty-paste", "paste into the console (TIOCLINUX)", "EPERM", "ENOTTY|EINVAL", selection, 0},
    {"tty-line-discipline", "set a line discipline, which loads it", "EPERM", NULL, line_discipline, 0},
    {"tty-console", "open the console", "ENOENT", "EIO|ENXIO|ENODEV", console, 0},
    {"tty-screen", "open the screen", "ENOENT", "EIO|ENXIO|ENODEV", screen, 0},
    {"tty-list", "find terminals of others", "nothing", NULL, list_others, 0},
    TABLE_END,
};
