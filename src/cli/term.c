/*
 * term.c - raw mode and the way back
 */
#include "cli/term.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/modes.h"

#define ANSWER_QUIET_MS 100     /* a terminal that was silent so long has no answer left */
#define ANSWER_MAX_MS 1000

static struct termios saved;
static bool is_raw;
static bool is_registered;
static struct modes modes;

int term_raw(bool input, struct err *e)
{
    struct termios t;

    if (is_raw || !isatty(STDIN_FILENO))
        return 0;
    if (tcgetattr(STDIN_FILENO, &saved) < 0)
        return err_sys(e, errno, "read the terminal's settings");
    if (!is_registered && atexit(term_restore) != 0)
        return err_set(e, ERR_INTERNAL, "cannot register the way back of the terminal");
    is_registered = true;
    t = saved;
    if (input)
        cfmakeraw(&t);
    else
        t.c_oflag &= ~(tcflag_t)OPOST;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &t) < 0)
        return err_sys(e, errno, "set the terminal to raw");
    is_raw = true;
    return 0;
}

void term_output(const void *p, size_t n)
{
    if (is_raw)
        modes_feed(&modes, p, n);
}

/* Reads and drops until the terminal has been silent for a while. */
static void drop_answers(void)
{
    int64_t end = clock_boot_ms() + ANSWER_MAX_MS;
    struct pollfd pfd = {.fd = STDIN_FILENO, .events = POLLIN};
    char dropped[512];

    while (clock_boot_ms() < end && poll(&pfd, 1, ANSWER_QUIET_MS) > 0)
        if ((pfd.revents & POLLIN) == 0 || read(STDIN_FILENO, dropped, sizeof dropped) <= 0)
            return;
}

void term_restore(void)
{
    struct buf undo;

    if (!is_raw)
        return;
    is_raw = false;
    buf_init(&undo, 4096);
    modes_undo(&modes, &undo);
    if (undo.len > 0 && isatty(STDOUT_FILENO))
        (void)!write(STDOUT_FILENO, undo.data, undo.len);   /* nothing to be done about a terminal that is gone */
    buf_done(&undo);
    if (modes.asked)
        drop_answers();
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &saved);       /* flushes what was typed or answered meanwhile */
}

bool term_size(unsigned *ret_rows, unsigned *ret_cols)
{
    struct winsize w;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0) {
            *ret_rows = w.ws_row;
            *ret_cols = w.ws_col;
            return true;
        }
    }
    return false;
}
