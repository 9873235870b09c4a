/*
 * netload.c - the two ends of a connection whose throughput and latency are measured
 *
 * Usage: netload serve ADDRESS PORT           until killed; says "ready"
 *        netload get ADDRESS PORT BYTES [HELLO]    prints seconds from connect to the last byte
 *        netload put ADDRESS PORT BYTES [HELLO]
 *        netload ping ADDRESS PORT COUNT [HELLO]   prints the median of a round trip of 100 bytes, in microseconds
 * HELLO is a file whose bytes are sent first and that the server throws away: the greeting of TLS, by whose name a proxy
 * decides. Runs on the host and in sandboxes; started by net.py.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (256 * 1024)
#define PING 100
#define PINGS_MAX 100000

static uint8_t block[BLOCK];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void read_all(int fd, void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t r = read(fd, (uint8_t *)p + at, n - at);
        if (r <= 0)
            die("read");
        at += (size_t)r;
    }
}

static void write_all(int fd, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t r = write(fd, (const uint8_t *)p + at, n - at);
        if (r <= 0)
            die("write");
        at += (size_t)r;
    }
}

static struct sockaddr_in address(const char *host, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};

    if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
        die(host);
    return a;
}

/* What is wanted, in 16 bytes: g, p or e and a number. */
struct wish {
    uint8_t kind, pad[7];
    uint64_t n;
};

static void give(int fd, uint64_t n)
{
    for (uint64_t left = n; left > 0;) {
        size_t part = left < BLOCK ? (size_t)left : BLOCK;
        write_all(fd, block, part);
        left -= part;
    }
}

static void take(int fd, uint64_t n)
{
    for (uint64_t left = n; left > 0;) {
        ssize_t r = read(fd, block, left < BLOCK ? (size_t)left : BLOCK);
        if (r <= 0)
            die("read");
        left -= (uint64_t)r;
    }
}

static void serve_one(int fd)
{
    struct wish w;

    if (read(fd, &w, 1) != 1)
        return;           /* somebody looked whether we listen */
    if (w.kind == 0x16) { /* a record of TLS */
        uint8_t head[4];
        read_all(fd, head, sizeof head);
        take(fd, (uint64_t)head[2] << 8 | head[3]);
        read_all(fd, &w, 1);
    }
    read_all(fd, w.pad, sizeof w - 1);
    if (w.kind == 'g') {
        give(fd, w.n);
    } else if (w.kind == 'p') {
        take(fd, w.n);
        write_all(fd, "k", 1);
    }
    for (uint64_t i = 0; w.kind == 'e' && i < w.n; i++) {
        read_all(fd, block, PING);
        write_all(fd, block, PING);
    }
}

static void serve(const char *host, const char *port)
{
    struct sockaddr_in a = address(host, port);
    int on = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)signal(SIGCHLD, SIG_IGN);
    (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s, (const struct sockaddr *)&a, sizeof a) < 0 || listen(s, 100) < 0)
        die("bind");
    printf("ready\n");
    (void)fflush(stdout);
    for (;;) {
        int fd = accept(s, NULL, NULL);
        if (fd < 0)
            die("accept");
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (fork() == 0) {
            serve_one(fd);
            _exit(0);
        }
        (void)close(fd);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void ping(int fd, uint64_t n)
{
    static double samples[PINGS_MAX];

    for (uint64_t i = 0; i < n; i++) {
        double t = now_s();
        write_all(fd, block, PING);
        read_all(fd, block, PING);
        samples[i] = now_s() - t;
    }
    qsort(samples, (size_t)n, sizeof *samples, by_value);
    printf("%.3f\n", samples[n / 2] * 1e6);
}

static void send_hello(int fd, const char *path)
{
    FILE *f = fopen(path, "rb");

    if (f == NULL)
        die(path);
    size_t n = fread(block, 1, sizeof block, f);
    (void)fclose(f);
    write_all(fd, block, n);
}

static void ask(char kind, const char *host, const char *port, uint64_t n, const char *hello)
{
    struct sockaddr_in a = address(host, port);
    struct wish w = {.kind = (uint8_t)kind, .n = n};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    double t = now_s();

    if (connect(fd, (const struct sockaddr *)&a, sizeof a) < 0)
        die("connect");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (hello != NULL)
        send_hello(fd, hello);
    write_all(fd, &w, sizeof w);
    if (kind == 'e') {
        ping(fd, n);
        return;
    }
    if (kind == 'g') {
        take(fd, n);
    } else {
        give(fd, n);
        take(fd, 1);
    }
    printf("%.6f\n", now_s() - t);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool is_ping = strcmp(what, "ping") == 0;

    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && strcmp(what, "serve") == 0)
        serve(argv[2], argv[3]);
    if (argc < 5 || (strcmp(what, "get") != 0 && strcmp(what, "put") != 0 && !is_ping)) {
        fprintf(stderr,
                "usage: netload serve ADDRESS PORT | get|put|ping ADDRESS PORT NUMBER [HELLO]\n");
        return 2;
    }
    uint64_t n = strtoull(argv[4], NULL, 10);
    if (is_ping && (n < 1 || n > PINGS_MAX))
        return 2;
    ask(is_ping ? 'e' : what[0], argv[2], argv[3], n, argc > 5 ? argv[5] : NULL);
    return 0;
}
