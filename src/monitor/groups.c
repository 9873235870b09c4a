/*
 * groups.c - cgroups and pipes of execs, made ahead
 *
 * Each exec runs in a group of its own below the sandbox's, so that its whole tree can be killed by one
 * write. A group is used again once nothing is left in it; one that a daemon still lives in is left
 * alone, and one that was killed is removed: the kernel (seen on 6.18) compares the group's count of
 * kills with that of the group init lives in, and kills at birth whatever CLONE_INTO_CGROUP starts
 * there. One set of pipes and one group lie ready, so that an exec does not wait for them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "monitor/monitor.h"
#include "sys/fd.h"

#define GROUPS 2048
#define FREE_MOST 8         /* more empty groups are removed */
#define LOOKS 4             /* groups looked at for being empty at a time */
#define LOOKS_OWED 16       /* and at most for each exec that ended */
#define NAME_SIZE 32
#define RETRY_MS 1000

enum { G_NONE, G_FREE, G_USED, G_LEFT };

static struct {
    uint8_t state[GROUPS];
    uint32_t owner[GROUPS];     /* seq of the exec that is or was in it */
    bool killed[GROUPS];        /* must not be used again */
} groups;
static unsigned groups_high;    /* none was made from here on */
static unsigned left;           /* how many are G_LEFT */
static unsigned spare;          /* how many are G_FREE */
static unsigned owed;           /* looks for being empty that are still to be done */
static unsigned latest;         /* the group that was left last */
static unsigned next_look;

static int ready_group = -1;
static int ready_fd = -1;
static int64_t work_not_before_ms;
static int ready_pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};

/* "x<group>" and, if there is one, "/<file>". */
static const char *name_of(unsigned group, const char *file, char out[NAME_SIZE])
{
    char digits[12];
    size_t n = 0;
    size_t at = 0;

    do
        digits[n++] = (char)('0' + group % 10);
    while ((group /= 10) != 0);
    out[at++] = 'x';
    while (n > 0)
        out[at++] = digits[--n];
    if (file != NULL) {
        out[at++] = '/';
        memcpy(out + at, file, strlen(file));
        at += strlen(file);
    }
    out[at] = '\0';
    return out;
}

static bool is_empty(unsigned group)
{
    char name[NAME_SIZE];
    char text[128];

    ssize_t n = fd_read_at(MON_FD_CGROUP, name_of(group, "cgroup.events", name), text, sizeof text);
    return n > 0 && strstr(text, "populated 0") != NULL;
}

/* Whether it was left and is now free to be used. */
static bool look(unsigned group)
{
    char name[NAME_SIZE];

    if (groups.state[group] != G_LEFT || !is_empty(group))
        return false;
    bool remove = spare >= FREE_MOST || groups.killed[group];
    if (remove && unlinkat(MON_FD_CGROUP, name_of(group, NULL, name), AT_REMOVEDIR) == 0) {
        groups.state[group] = G_NONE;
        groups.killed[group] = false;
        left--;
        return false;
    }
    if (groups.killed[group])
        return false;
    groups.state[group] = G_FREE;
    left--;
    spare++;
    return true;
}

/* Moves next_look to the next left group; there is one. */
static void next_left(void)
{
    do
        next_look = next_look + 1 < groups_high ? next_look + 1 : 0;
    while (groups.state[next_look] != G_LEFT);
}

/* A left group that is empty by now: the latest most likely, then some in turn. */
static int find_empty(void)
{
    if (left > 0 && look(latest))
        return (int)latest;
    for (unsigned i = 0; i < LOOKS && left > 0; i++) {
        next_left();
        if (look(next_look))
            return (int)next_look;
    }
    return -1;
}

static int make_group(void)
{
    char name[NAME_SIZE];
    unsigned g = 0;

    while (g < groups_high && groups.state[g] != G_NONE)
        g++;
    if (g == GROUPS)
        return -1;
    if (mkdirat(MON_FD_CGROUP, name_of(g, NULL, name), 0755) < 0 && errno != EEXIST)
        return -1;
    /* Init, whose uid is another, starts programs right inside it. The common ancestor's cgroup.procs
     * keeps everybody else from moving anything here. */
    if (fchmodat(MON_FD_CGROUP, name_of(g, "cgroup.procs", name), 0666, 0) < 0)
        return -1;
    groups.state[g] = G_FREE;
    spare++;
    if (g == groups_high)
        groups_high++;
    return (int)g;
}

static int open_group(unsigned group)
{
    char name[NAME_SIZE];

    return openat(MON_FD_CGROUP, name_of(group, NULL, name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int find_free(void)
{
    for (unsigned i = 0; i < groups_high; i++)
        if (groups.state[i] == G_FREE)
            return (int)i;
    return -1;
}

static int get_group(void)
{
    int g = find_free();

    if (g < 0)
        g = find_empty();
    return g >= 0 ? g : make_group();
}

int group_take(uint32_t seq, int *ret_fd)
{
    int g = ready_group;

    if (g >= 0) {
        *ret_fd = take_fd(&ready_fd);
        ready_group = -1;
    } else {
        g = get_group();
        int fd = g >= 0 ? open_group((unsigned)g) : -1;
        if (fd < 0)
            return -1;
        *ret_fd = fd;
    }
    groups.state[g] = G_USED;
    spare--;
    groups.owner[g] = seq;
    return g;
}

bool group_kill(int group, uint32_t seq)
{
    char name[NAME_SIZE];

    if (group < 0 || groups.owner[group] != seq ||
        (groups.state[group] != G_USED && groups.state[group] != G_LEFT))
        return false;
    groups.killed[group] = true;
    return fd_write_at(MON_FD_CGROUP, name_of((unsigned)group, "cgroup.kill", name), "1") == 0;
}

bool group_is_empty(int group, uint32_t seq)
{
    return group < 0 || groups.owner[group] != seq || groups.state[group] != G_USED ||
           is_empty((unsigned)group);
}

void group_release(int group, uint32_t seq)
{
    if (group < 0 || groups.owner[group] != seq || groups.state[group] != G_USED)
        return;
    groups.state[group] = G_LEFT;
    latest = (unsigned)group;
    left++;
    owed = owed + 2 < LOOKS_OWED ? owed + 2 : LOOKS_OWED;
}

uint32_t group_owner(int group)
{
    bool known = group >= 0 && group < GROUPS && (groups.state[group] == G_USED || groups.state[group] == G_LEFT);

    return known ? groups.owner[group] : 0;
}

static int make_pipe(int which, int ret[2])
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    /* Ours must never block; the program's must, as programs expect. */
    ret[0] = ends[which == 0 ? 1 : 0];
    ret[1] = ends[which == 0 ? 0 : 1];
    int r = fcntl(ret[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
    if (r < 0) {
        fd_close(&ret[0]);
        fd_close(&ret[1]);
    }
    return r;
}

int pipe_take(int which, int ret[2])
{
    int *ready = ready_pipes[which];

    if (ready[0] < 0)
        return make_pipe(which, ret);
    ret[0] = take_fd(&ready[0]);
    ret[1] = take_fd(&ready[1]);
    return 0;
}

bool groups_want_work(void)
{
    if (mon.now_ms < work_not_before_ms)
        return false;
    if (ready_group < 0 || (owed > 0 && left > 0))
        return true;
    for (int i = 0; i < 3; i++)
        if (ready_pipes[i][0] < 0)
            return true;
    return false;
}

void groups_work(void)
{
    if (ready_group >= 0)
        for (unsigned i = 0; i < LOOKS && owed > 0 && left > 0; i++, owed--) {
            next_left();
            (void)look(next_look);
        }
    if (ready_group < 0) {
        int g = get_group();
        ready_fd = g >= 0 ? open_group((unsigned)g) : -1;
        if (ready_fd >= 0)
            ready_group = g;
        else
            work_not_before_ms = mon.now_ms + RETRY_MS;
    }
    for (int i = 0; i < 3; i++)
        if (ready_pipes[i][0] < 0 && make_pipe(i, ready_pipes[i]) < 0) {
            ready_pipes[i][0] = ready_pipes[i][1] = -1;
            work_not_before_ms = mon.now_ms + RETRY_MS;     /* out of descriptors */
        }
}

int terminal_open(uint16_t rows, uint16_t cols, int *ret_ours, int *ret_inner)
{
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    int unlock = 0;
    /* A terminal is its opener's. Ours would be nobody's inside, so it is opened as root of the sandbox, which is our real
     * uid; init gives it to the command's user. */
    (void)setfsuid(getuid());
    auto_close int ours = openat(MON_FD_DEVPTS, "ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    int error = errno;
    (void)setfsuid(geteuid());

    if (ours < 0)
        return -error;
    if (ioctl(ours, TIOCSPTLCK, &unlock) < 0 || ioctl(ours, TIOCSWINSZ, &size) < 0)
        return -errno;
    /* By the descriptor, never by name: the name would be looked up in a place the sandbox can change. */
    int inner = ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (inner < 0)
        return -errno;
    *ret_ours = take_fd(&ours);
    *ret_inner = inner;
    return 0;
}
