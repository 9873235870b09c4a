/*
 * probe.c - Probe: is a server of the sandbox ready?
 *
 * One of: a port of the loopback accepts connections, or answers HTTP as wished; a file is there; a text has a line that matches.
 * Runs inside with the sandbox's rights and limits; who asks gives it a time to live.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/fs/op.h"
#include "sys/fd.h"

#define CONNECT_MS 2000
#define SILENCE_MS 10000       /* of a server that was asked */
#define ANSWER_MAX (64 * 1024) /* what of it is looked at */

static int not_ready(struct fs_error *e, const char *what)
{
    return fs_fail_kind(e, "NotReady", what);
}

/* --- connections ------------------------------------------------------------------------------------------------- */

/* A connected, blocking socket or -errno. */
static int reach(const struct sockaddr *a, socklen_t n)
{
    auto_close int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0;
    socklen_t size = sizeof error;

    if (fd < 0)
        return -errno;
    if (connect(fd, a, n) < 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (errno != EINPROGRESS)
            return -errno;
        if (poll(&p, 1, CONNECT_MS) <= 0)
            return -ETIMEDOUT;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
            return -errno;
        if (error != 0)
            return -error;
    }
    int r = fd_set_nonblock(fd, false);
    return r < 0 ? r : take_fd(&fd);
}

static int connect_port(int64_t port, struct fs_error *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};

    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    int fd = reach((const struct sockaddr *)&v4, sizeof v4);
    if (fd < 0)
        fd = reach((const struct sockaddr *)&v6, sizeof v6);
    return fd < 0 ? not_ready(e, "nothing accepts connections on the port") : fd;
}

/* --- texts ------------------------------------------------------------------------------------------------------- */

static int compile(const char *pattern, regex_t *ret, struct fs_error *e)
{
    if (regcomp(ret, pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE) != 0)
        return fs_fail_kind(e, "Invalid", "the regular expression cannot be read");
    return 0;
}

static int match(const char *pattern, const char *text, const char *otherwise, struct fs_error *e)
{
    regex_t re;

    if (compile(pattern, &re, e) < 0)
        return -1;
    int r = regexec(&re, text, 0, NULL, 0);
    regfree(&re);
    return r == 0 ? 0 : not_ready(e, otherwise);
}

/* --- HTTP -------------------------------------------------------------------------------------------------------- */

/* The answer to a request of HTTP/1.0, as much of it as is looked at; *ret_len bytes with a NUL. */
static int ask(int fd, const char *path, char *out, struct fs_error *e)
{
    char head[LIMIT_PATH + 128];
    size_t len = 0;

    int n = snprintf(
        head, sizeof head,
        "GET %s HTTP/1.0\r\nhost: localhost\r\nuser-agent: quicksand-probe\r\nconnection: close\r\n\r\n",
        path);
    if (n < 0 || (size_t)n >= sizeof head)
        return fs_fail_kind(e, "Invalid", "the path is too long");
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL) != n)
        return not_ready(e, "the server took no request");
    while (len < ANSWER_MAX) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, SILENCE_MS) <= 0)
            return not_ready(e, "the server did not answer");
        ssize_t r = recv(fd, out + len, ANSWER_MAX - len, 0);
        if (r <= 0)
            break;
        len += (size_t)r;
    }
    /* Expressions end at a NUL, of which a text has none. */
    for (size_t i = 0; i < len; i++)
        if (out[i] == '\0')
            out[i] = ' ';
    out[len] = '\0';
    return 0;
}

static int probe_http(struct op *o, int64_t port, struct fs_error *e)
{
    static char answer[ANSWER_MAX + 1];
    const char *path, *body;
    size_t len;
    int64_t min, max;
    char text[64];

    if (arg_text(o, "path", &path, &len, e) < 0 || arg_text(o, "body", &body, &len, e) < 0 ||
        arg_int(o, "status_min", 200, 100, 599, &min, e) < 0 ||
        arg_int(o, "status_max", 399, 100, 599, &max, e) < 0)
        return -1;
    auto_close int fd = connect_port(port, e);
    if (fd < 0 || ask(fd, path != NULL ? path : "/", answer, e) < 0)
        return -1;
    if (strncmp(answer, "HTTP/1.", 7) != 0 || strlen(answer) < 12 || answer[8] != ' ')
        return not_ready(e, "the answer is not HTTP");
    long status = strtol(answer + 9, NULL, 10);
    (void)snprintf(text, sizeof text, "the status of the answer is %ld", status);
    if (status < min || status > max)
        return not_ready(e, text);
    const char *rest = strstr(answer, "\r\n\r\n");
    return body == NULL ? 0
                        : match(body, rest != NULL ? rest + 4 : "",
                                "the body of the answer does not match", e);
}

/* --- */

static int probe_file(const char *path, struct fs_error *e)
{
    struct stat st;

    return stat(path, &st) == 0 ? 0 : not_ready(e, "the file is not there");
}

int op_probe(struct op *o, struct fs_error *e)
{
    int64_t tcp, http;
    const char *file = NULL, *pattern, *text;
    size_t len;

    if (arg_int(o, "tcp_port", 0, 1, UINT16_MAX, &tcp, e) < 0 ||
        arg_int(o, "http_port", 0, 1, UINT16_MAX, &http, e) < 0 ||
        arg_text(o, "match", &pattern, &len, e) < 0 || arg_text(o, "text", &text, &len, e) < 0)
        return -1;
    if (http != 0)
        return probe_http(o, http, e);
    if (pattern != NULL)
        return match(pattern, text != NULL ? text : "", "no line of the log matches yet", e);
    if (json_get(o->args, "file") != NULL)
        return arg_path(o, "file", &file, e) < 0 ? -1 : probe_file(file, e);
    if (tcp == 0)
        return fs_fail_kind(e, "Invalid", "tcp_port, http_port, file or match is needed");
    int fd = connect_port(tcp, e);
    if (fd < 0)
        return -1;
    (void)close(fd);
    return 0;
}
