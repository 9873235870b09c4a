/*
 * evil_init.c - a PID 1 that attacks its monitor
 *
 * Linked with quicksand-init's own sources in place of its setup_run(), by tests/abuse/meson.build;
 * tests/system/test_evil_init.py puts it where a daemon of its own has quicksand-init. In a sandbox whose host name is
 * evil-MODE it becomes that attack, with all the rights that init has before the sandbox's root is entered: every capability
 * of its namespace, no filter, the channel to the monitor. In all others it is the real one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "init/init.h"

#define PACKET 65536
#define FDS 250
#define INLINE_NOT 0x8000       /* bit of a type whose payload is in a memfd */

int __real_setup_run(struct init *in, const struct init_setup *s, const int *fds, int nfds, struct fault *f);
int __wrap_setup_run(struct init *in, const struct init_setup *s, const int *fds, int nfds, struct fault *f);

static int channel;
static uint64_t state = 88172645463325252ULL;
static uint8_t packet[PACKET];

static uint32_t any(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16) % below;
}

static void put(size_t at, const void *p, size_t n)
{
    memcpy(packet + at, p, n);
}

/* The bytes of `packet`; waits for room, because the attack is to go on. */
static void send_raw(size_t n, int nfds)
{
    static union {
        char space[CMSG_SPACE(sizeof(int) * FDS)];
        struct cmsghdr head;
    } control;
    struct iovec io = {packet, n};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};

    if (nfds > 0) {
        m.msg_control = control.space;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
        for (int i = 0; i < nfds; i++)
            memcpy(CMSG_DATA(c) + sizeof(int) * (size_t)i, &channel, sizeof channel);
    }
    while (sendmsg(channel, &m, MSG_NOSIGNAL) < 0 && errno == EAGAIN) {
        struct pollfd pf = {.fd = channel, .events = POLLOUT};
        (void)poll(&pf, 1, 100);
    }
}

static size_t head(uint16_t type, uint32_t len)
{
    uint16_t version = 1;
    uint32_t tag = any(3);

    put(0, &type, 2);
    put(2, &version, 2);
    put(4, &tag, 4);
    put(8, &len, 4);
    return 12;
}

static void say_ready(int32_t error, uint32_t step)
{
    size_t n = head(INIT_READY, 8 + step);

    put(n, &error, 4);
    put(n + 4, &step, 4);
    memset(packet + n + 8, 'S', step);
    send_raw(n + 8 + step, 0);
}

static void say_started(uint32_t seq, int32_t pid, int32_t error)
{
    size_t n = head(INIT_STARTED, 20);
    uint32_t len = 4;

    put(n, &seq, 4);
    put(n + 4, &pid, 4);
    put(n + 8, &error, 4);
    put(n + 12, &len, 4);
    put(n + 16, "step", 4);
    send_raw(n + 20, 0);
}

static void say_exited(uint32_t seq, int32_t code, int32_t signal, int nfds)
{
    size_t n = head(INIT_EXITED, 48);
    uint64_t much = UINT64_MAX;
    uint32_t len = 8;

    put(n, &seq, 4);
    put(n + 4, &code, 4);
    put(n + 8, &signal, 4);
    put(n + 12, &much, 8);
    put(n + 20, &much, 8);
    put(n + 28, &much, 8);
    put(n + 36, &len, 4);
    put(n + 40, "\x1b[2J\n\xff\x01", 8);
    send_raw(n + 48, nfds);
}

/* The next EXEC: its number. Its descriptors stay open here for ever. */
static uint32_t next_exec(void)
{
    static uint8_t in[PACKET];
    char control[CMSG_SPACE(sizeof(int) * 16)];

    for (;;) {
        struct iovec io = {in, sizeof in};
        struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct pollfd pf = {.fd = channel, .events = POLLIN};
        uint16_t type;
        uint32_t seq;

        (void)poll(&pf, 1, -1);
        ssize_t n = recvmsg(channel, &m, 0);
        if (n == 0)
            _exit(0);
        if (n < 16)
            continue;
        memcpy(&type, in, 2);
        memcpy(&seq, in + 12, 4);
        if (type == INIT_EXEC)
            return seq;
    }
}

static void idle(void)
{
    for (;;)
        (void)pause();
}

static void flood(void)
{
    for (;;) {
        if (any(2) == 0)
            say_started(any(100), (int32_t)any(UINT32_MAX), 0);
        else
            say_exited(any(100), (int32_t)any(256), 0, 0);
    }
}

static void lie(void)
{
    static const int32_t pids[] = {1, 0, -1, INT32_MIN, INT32_MAX, 2};
    static const int32_t codes[] = {0, -1, 256, INT32_MIN, INT32_MAX, 255};
    static const int32_t signals[] = {0, 9, 64, 65, -9, INT32_MAX};

    for (;;) {
        uint32_t seq = next_exec();
        for (int i = 0; i < 6; i++)
            switch (any(5)) {
            case 0:
                say_exited(seq, codes[any(6)], signals[any(6)], 0);
                break;
            case 1:
                say_started(seq, pids[any(6)], (int32_t)any(200));
                break;
            case 2:
                say_exited(seq + any(5), codes[any(6)], 0, 0);
                break;
            default:
                say_started(seq, 7, 0);
            }
    }
}

static void attack(const char *mode)
{
#define IS(name) (strcmp(mode, name) == 0)
    if (IS("silent"))
        idle();
    if (IS("early"))
        for (;;)
            say_exited(any(100), 0, 0, 0);
    if (IS("error")) {
        say_ready(5, 60);
        idle();
    }
    say_ready(0, 0);
    if (IS("exit"))
        _exit(0);
    if (IS("close")) {
        (void)close(channel);
        idle();
    }
    if (IS("flood"))
        flood();
    if (IS("fork")) {
        for (int i = 0; i < 20; i++)
            if (syscall(SYS_clone, 17, 0, 0, 0, 0) == 0)
                break;
        flood();
    }
    if (IS("lies"))
        lie();
    if (IS("ends"))             /* each command ends well, and its output never */
        for (;;) {
            uint32_t seq = next_exec();
            say_started(seq, 7, 0);
            say_exited(seq, 0, 0, 0);
        }
    if (IS("again"))
        for (;;)
            say_ready((int32_t)any(2), any(64));
    if (IS("files"))
        for (;;)
            say_exited(any(100), 0, 0, FDS);
    if (IS("memory"))           /* messages whose bytes are elsewhere, or that are longer than they say */
        for (;;)
            send_raw(head((uint16_t)(any(10) | (any(2) != 0 ? INLINE_NOT : 0)), any(UINT32_MAX)) + any(64), (int)any(3));
    if (IS("large"))
        for (;;)
            send_raw(head((uint16_t)any(10), PACKET - 12) + PACKET - 12, 0);
    if (IS("junk"))
        for (;;) {
            size_t n = any(4) == 0 ? any(PACKET) : any(80);
            for (size_t i = 0; i < n; i++)
                packet[i] = (uint8_t)any(256);
            send_raw(n, 0);
        }
    idle();                     /* "stall": takes every message and does nothing */
}

int __wrap_setup_run(struct init *in, const struct init_setup *s, const int *fds, int nfds, struct fault *f)
{
    struct timespec now;

    if (strncmp(s->hostname, "evil-", 5) != 0)
        return __real_setup_run(in, s, fds, nfds, f);
    channel = in->channel;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    state += (uint64_t)now.tv_nsec;
    attack(s->hostname + 5);
    return 0;
}
