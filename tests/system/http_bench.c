/*
 * http_bench.c - round trips a second over src/http, against http_echo_server in another process
 *
 * Usage: http_bench grpc|get ADDRESS COUNT [PARALLEL]. grpc: unary calls over HTTP/2; get: HTTP/1.1 keep-alive requests on a
 * plain socket. Prints round trips a second and the CPU time of this process for each.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/grpc.h"
#include "net/addr.h"
#include "sys/fd.h"

static struct loop *loop;
static struct http_client *client;
static long left, under_way, failed;

static void start_call(void);

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    under_way--;
    if (status != GRPC_OK) {
        failed++;
        fprintf(stderr, "call failed: %s\n", e->message);
    }
    if (left > 0 && failed == 0)
        start_call();
    else if (under_way == 0)
        loop_stop(loop);
}

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    grpc_call_consumed(c, n);
}

static const struct grpc_ops ops = {.on_message = on_message, .on_end = on_end};

static void start_call(void)
{
    static const char text[100] = "payload";

    left--;
    under_way++;
    struct grpc_call *c = grpc_client_call(client, "/test.Echo/Unary", NULL, 0, 0, &ops, NULL);
    grpc_send(c, text, sizeof text);
    grpc_send_end(c);
}

static int run_get(const char *address, long count)
{
    static const char request[] = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct net_addr a;
    struct err e;
    char in[4096];

    if (net_addr_parse(address, &a, &e) < 0) {
        fprintf(stderr, "%s\n", e.message);
        return -1;
    }
    auto_close int fd = socket(a.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a.sa, a.len) < 0)
        return -1;
    for (long i = 0; i < count; i++) {
        if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
            return -1;
        ssize_t n = recv(fd, in, sizeof in, 0);
        if (n < 5 || memcmp(in + n - 5, "hello", 5) != 0)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct rusage ru;

    if (argc < 4) {
        fprintf(stderr, "usage: http_bench grpc|get ADDRESS COUNT [PARALLEL]\n");
        return 2;
    }
    long count = strtol(argv[3], NULL, 10), parallel = argc > 4 ? strtol(argv[4], NULL, 10) : 1;
    int64_t start_us = clock_wall_us();
    if (strcmp(argv[1], "get") == 0) {
        if (run_get(argv[2], count) < 0) {
            fprintf(stderr, "failed: %s\n", strerror(errno));
            return 1;
        }
    } else {
        loop = loop_new();
        client = http_client_new(loop, argv[2]);
        left = count;
        for (long i = 0; i < parallel && left > 0; i++)
            start_call();
        (void)loop_run(loop);
        http_client_free(client);
        loop_free(loop);
    }
    double us = (double)(clock_wall_us() - start_us);
    (void)getrusage(RUSAGE_SELF, &ru);
    double cpu_us = (double)ru.ru_utime.tv_sec * 1e6 + (double)ru.ru_utime.tv_usec +
                    (double)ru.ru_stime.tv_sec * 1e6 + (double)ru.ru_stime.tv_usec;
    printf("%.0f round trips/s, %.1f us each, %.1f us CPU of the client each\n",
           (double)count * 1e6 / us, us / (double)count, cpu_us / (double)count);
    return failed > 0;
}
