/*
 * serve.c - the server of netload: GET /N is answered with N bytes, PUT with none
 *
 * Some processes wait for connections, so that none has to be made for one. What looks like the greeting of TLS is thrown away
 * where there is no TLS: a proxy decides by it, and is not part of what is measured.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "netload.h"

#define WORKERS 16

static void drop_greeting(struct wire *w)
{
    const uint8_t *head = (const uint8_t *)w->held;

    if (wire_hold(w, 5) && head[0] == 0x16)
        wire_drop(w, 5u + (size_t)(head[3] << 8 | head[4]));
}

static uint64_t number_after(const char *head, const char *what)
{
    const char *at = strcasestr(head, what);

    return at != NULL ? strtoull(at + strlen(what), NULL, 10) : 0;
}

static void serve_one(struct wire *w, const char *wanted)
{
    char out[256];
    size_t n;

    if (w->ssl == NULL)
        drop_greeting(w);
    while ((n = wire_head(w)) > 0) {
        bool is_put = strncmp(w->held, "PUT ", 4) == 0, is_good = wanted == NULL || strcasestr(w->held, wanted) != NULL;
        uint64_t comes = number_after(w->held, "\ncontent-length:");
        uint64_t goes = is_put || !is_good ? 0 : number_after(w->held, "GET /");
        wire_drop(w, n);
        wire_drop(w, comes);
        int len = snprintf(out, sizeof out, "HTTP/1.1 %s\r\ncontent-length: %llu\r\n\r\n", is_good ? "200 OK" : "403 Forbidden",
                           (unsigned long long)goes);
        /* A short answer is one packet. */
        size_t with = goes < sizeof out - (size_t)len ? (size_t)goes : 0;
        memset(out + len, 'x', with);
        wire_write(w, out, (size_t)len + with);
        wire_fill(w, goes - with);
    }
}

static _Noreturn void work(int s, struct ssl_ctx_st *tls, const char *wanted)
{
    struct wire w;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        int fd = accept(s, NULL, NULL);
        if (fd < 0)
            die("accept");
        if (wire_accept(&w, fd, tls))
            serve_one(&w, wanted);
        wire_close(&w);
    }
}

void serve(const char *host, const char *port, const char *cert, const char *key, const char *wanted)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
    struct ssl_ctx_st *tls = cert != NULL ? wire_server_tls(cert, key) : NULL;
    int on = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
        die(host);
    (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s, (const struct sockaddr *)&a, sizeof a) < 0 || listen(s, 1024) < 0)
        die("bind");
    printf("ready\n");
    (void)fflush(stdout);
    /* A worker dies of a connection that breaks, and is replaced. */
    for (int working = 0;; working++) {
        if (working == WORKERS && wait(NULL) > 0)
            working--;
        pid_t pid = fork();
        if (pid < 0)
            die("fork");
        if (pid == 0)
            work(s, tls, wanted);
    }
}
