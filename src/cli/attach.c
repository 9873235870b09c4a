/*
 * attach.c - streams between here and a sandbox
 *
 * One loop over libcurl's multi handle: up to two downloads, one upload of stdin at a time (stdin is read only when none
 * is under way), one resize. A download that breaks goes on at the offset reached.
 */
#include "cli/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/term.h"

#define PATIENCE_MS 15000       /* how long a server that is away is asked again */
#define PAUSE_MS 200
#define STDIN_PIECE (256 * 1024)
#define WAIT_S 60

enum kind { OUT, ERR, IN, RESIZE, NKINDS };

struct transfer {
    struct session *session;
    enum kind kind;
    CURL *h;                    /* NULL when nothing is under way */
    struct curl_slist *headers;
    struct buf answer;          /* of anything but a download that goes well */
    uint64_t offset;            /* downloads: of the next byte; stdin: of the piece */
    int64_t failing_since_ms;   /* 0 = not */
    int64_t again_at_ms;        /* 0 = not waiting */
    bool wanted;                /* to be started */
    bool over;
};

struct session {
    struct client *cl;
    const struct attach *a;
    const char *paths[2];       /* of the downloads */
    CURLM *multi;
    struct transfer t[NKINDS];
    char *piece;                /* stdin bytes under way, STDIN_PIECE */
    size_t npiece;
    bool stdin_eof;             /* ours has ended */
    bool interrupted;           /* the operator's first signal was passed on */
    struct err error;
    bool failed;
};

static volatile sig_atomic_t caught, resized;
static int wake_fds[2] = {-1, -1};

static void on_signal(int sig)
{
    int error = errno;

    if (sig == SIGWINCH)
        resized = 1;
    else
        caught = sig;
    if (wake_fds[1] >= 0)
        (void)!write(wake_fds[1], "", 1);       /* a full pipe wakes as well */
    errno = error;
}

void attach_catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
    struct sigaction sa = {.sa_handler = on_signal};

    if (wake_fds[0] < 0 && pipe2(wake_fds, O_CLOEXEC | O_NONBLOCK) < 0)
        wake_fds[0] = wake_fds[1] = -1;
    for (size_t i = 0; i < array_len(signals); i++)
        (void)sigaction(signals[i], &sa, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

int attach_signal(void)
{
    int sig = caught;

    caught = 0;
    return sig;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EAGAIN) {
            struct pollfd pfd = {.fd = fd, .events = POLLOUT};
            (void)poll(&pfd, 1, -1);
            continue;
        }
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -1;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

static void fail(struct session *s, const struct err *e)
{
    if (!s->failed)
        s->error = *e;
    s->failed = true;
}

/* --- transfers ----------------------------------------------------------------------------------------------------- */

static size_t on_download(char *p, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    long status = 0;
    struct err e;

    n *= size;
    curl_easy_getinfo(t->h, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return buf_add(&t->answer, p, n) < 0 ? 0 : n;
    term_output(p, n);
    if (write_all(t->kind == ERR ? STDERR_FILENO : STDOUT_FILENO, p, n) < 0) {
        (void)err_sys(&e, errno, "write to %s", t->kind == ERR ? "stderr" : "stdout");
        fail(t->session, &e);
        return 0;
    }
    t->offset += n;
    t->failing_since_ms = 0;
    return n;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    unsigned long long first;
    char line[64];

    n *= size;
    if (n < sizeof line && n > 10 && strncasecmp(p, "x-offset:", 9) == 0) {
        memcpy(line, p, n);
        line[n] = '\0';
        first = strtoull(line + 9, NULL, 10);
        if (first > t->offset) {
            fprintf(stderr, "quicksand: %llu bytes of output were dropped before they were read\n",
                    first - (unsigned long long)t->offset);
            t->offset = first;
        }
    }
    return n;
}

static size_t on_answer(char *p, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;

    return buf_add(&t->answer, p, size * n) < 0 ? 0 : size * n;
}

static void begin_download(struct session *s, struct transfer *t)
{
    const char *path = s->paths[t->kind];
    auto_free char *full = mem_printf("%s%coffset=%llu", path, strchr(path, '?') != NULL ? '&' : '?',
                                      (unsigned long long)t->offset);

    t->h = client_handle(s->cl, "GET", full, &t->headers);
    curl_easy_setopt(t->h, CURLOPT_WRITEFUNCTION, on_download);
    curl_easy_setopt(t->h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->h, CURLOPT_HEADERDATA, t);
}

static void begin_stdin(struct session *s, struct transfer *t)
{
    auto_free char *path = mem_printf("%s/stdin?offset=%llu&eof=%s", s->a->base, (unsigned long long)t->offset,
                                      s->stdin_eof ? "true" : "false");

    t->headers = curl_slist_append(t->headers, "content-type: application/octet-stream");
    t->h = client_handle(s->cl, "POST", path, &t->headers);
    curl_easy_setopt(t->h, CURLOPT_POSTFIELDSIZE, (long)s->npiece);
    curl_easy_setopt(t->h, CURLOPT_POSTFIELDS, s->piece);
    curl_easy_setopt(t->h, CURLOPT_WRITEFUNCTION, on_answer);
}

static void begin_resize(struct session *s, struct transfer *t)
{
    auto_free char *path = mem_printf("%s/resize", s->a->base);
    unsigned rows = 24, cols = 80;
    char text[64];

    (void)term_size(&rows, &cols);
    (void)snprintf(text, sizeof text, "{\"rows\":%u,\"cols\":%u}", rows, cols);
    t->headers = curl_slist_append(t->headers, "content-type: application/json");
    t->h = client_handle(s->cl, "POST", path, &t->headers);
    curl_easy_setopt(t->h, CURLOPT_COPYPOSTFIELDS, text);
    curl_easy_setopt(t->h, CURLOPT_WRITEFUNCTION, on_answer);
}

static void begin(struct session *s, struct transfer *t)
{
    t->wanted = false;
    t->again_at_ms = 0;
    t->headers = NULL;
    buf_clear(&t->answer);
    if (t->kind == RESIZE)
        begin_resize(s, t);
    else if (t->kind == IN)
        begin_stdin(s, t);
    else
        begin_download(s, t);
    curl_easy_setopt(t->h, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->h, CURLOPT_PRIVATE, t);
    curl_multi_add_handle(s->multi, t->h);
}

static void drop(struct session *s, struct transfer *t)
{
    if (t->h == NULL)
        return;
    curl_multi_remove_handle(s->multi, t->h);
    curl_easy_cleanup(t->h);
    curl_slist_free_all(t->headers);
    t->h = NULL;
    t->headers = NULL;
}

/* The piece is with the command, or will never be. */
static void stdin_taken(struct session *s, struct transfer *t)
{
    json_t *o = json_loadb(buf_str(&t->answer), t->answer.len, 0, NULL);
    bool closed = json_is_true(json_object_get(o, "closed"));

    json_decref(o);
    t->offset += s->npiece;
    s->npiece = 0;
    t->over = closed || s->stdin_eof;
}

static void ended(struct session *s, struct transfer *t, CURLcode r)
{
    int64_t now = clock_boot_ms();
    struct err e = {0};

    if (s->failed)
        return;
    if (client_check(s->cl, t->h, r, &t->answer, &e) == 0) {
        t->failing_since_ms = 0;
        if (t->kind == IN)
            stdin_taken(s, t);
        else if (t->kind != RESIZE)
            t->over = true;
        return;
    }
    if (t->kind == RESIZE)
        return;                         /* the command is gone or will be told of the next size */
    if (t->failing_since_ms == 0)
        t->failing_since_ms = now;
    if (err_row(e.code)->retryable && now - t->failing_since_ms < PATIENCE_MS) {
        t->again_at_ms = now + PAUSE_MS;
        return;
    }
    if (t->kind == IN)
        t->over = true;                 /* nobody reads it any more; the exit tells why */
    else
        fail(s, &e);
}

static void collect(struct session *s)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(s->multi, &left)) != NULL) {
        struct transfer *t = NULL;
        CURLcode r = m->data.result;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        ended(s, t, r);
        drop(s, t);
    }
}

/* --- the loop ------------------------------------------------------------------------------------------------------ */

static bool stdin_is_wanted(const struct session *s)
{
    const struct transfer *t = &s->t[IN];

    return s->a != NULL && s->a->use_stdin && !t->over && t->h == NULL && s->npiece == 0 && !s->stdin_eof &&
           t->again_at_ms == 0;
}

static void read_stdin(struct session *s)
{
    ssize_t n = read(STDIN_FILENO, s->piece, STDIN_PIECE);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0)
        s->stdin_eof = true;
    else
        s->npiece = (size_t)n;
    s->t[IN].wanted = true;
}

/* Sends the operator's signal to the command; the second time, or without a command, we leave. */
static bool pass_signal(struct session *s, int sig)
{
    if (s->a == NULL || s->interrupted || (s->a->tty && s->a->use_stdin))
        return false;
    s->interrupted = true;
    auto_free char *path = mem_printf("%s/signal", s->a->base);
    json_t *body = json_pack("{s:i}", "signal", sig);
    int r = client_json(s->cl, "POST", path, body, NULL, NULL);
    json_decref(body);
    return r == 0;
}

static int64_t start_due(struct session *s)
{
    int64_t now = clock_boot_ms(), next = now + 10000;

    for (int i = 0; i < NKINDS; i++) {
        struct transfer *t = &s->t[i];
        if (t->again_at_ms != 0 && t->again_at_ms > now && t->again_at_ms < next)
            next = t->again_at_ms;
        if (t->h == NULL && !t->over && (t->wanted || (t->again_at_ms != 0 && t->again_at_ms <= now)))
            begin(s, t);
    }
    return next - now;
}

static void wait_something(struct session *s, int64_t ms)
{
    struct curl_waitfd fds[2];
    unsigned n = 0;

    if (wake_fds[0] >= 0)
        fds[n++] = (struct curl_waitfd){.fd = wake_fds[0], .events = CURL_WAIT_POLLIN};
    bool with_stdin = stdin_is_wanted(s);
    if (with_stdin)
        fds[n++] = (struct curl_waitfd){.fd = STDIN_FILENO, .events = CURL_WAIT_POLLIN};
    (void)curl_multi_poll(s->multi, fds, n, (int)ms, NULL);
    char wakes[64];
    if (wake_fds[0] >= 0)
        (void)!read(wake_fds[0], wakes, sizeof wakes);      /* only there to end the poll */
    if (with_stdin && fds[n - 1].revents != 0)
        read_stdin(s);
}

/* Until both downloads are over. */
static void loop(struct session *s, int *ret_signal)
{
    int running;

    while (!s->failed && !(s->t[OUT].over && s->t[ERR].over)) {
        if (resized) {
            resized = 0;
            s->t[RESIZE].wanted = s->a != NULL && s->a->tty;
        }
        int sig = attach_signal();
        if (sig != 0 && !pass_signal(s, sig)) {
            *ret_signal = sig;
            return;
        }
        int64_t ms = start_due(s);
        (void)curl_multi_perform(s->multi, &running);
        collect(s);
        if (!s->failed && !(s->t[OUT].over && s->t[ERR].over))
            wait_something(s, ms);
    }
}

static void session_init(struct session *s, struct client *cl)
{
    *s = (struct session){.cl = cl, .multi = curl_multi_init(), .piece = mem_alloc(STDIN_PIECE)};
    for (int i = 0; i < NKINDS; i++) {
        s->t[i].session = s;
        s->t[i].kind = (enum kind)i;
        buf_init(&s->t[i].answer, 1024 * 1024);
    }
}

static void session_done(struct session *s)
{
    for (int i = 0; i < NKINDS; i++) {
        drop(s, &s->t[i]);
        buf_done(&s->t[i].answer);
    }
    curl_multi_cleanup(s->multi);
    free(s->piece);
}

static void want(struct session *s, enum kind kind, const char *path)
{
    s->paths[kind] = path;
    s->t[kind].wanted = path != NULL;
    s->t[kind].over = path == NULL;
}

int attach_copy(struct client *cl, const char *path_out, const char *path_err, struct err *e)
{
    struct session s;
    int sig = 0;

    attach_catch_signals();
    session_init(&s, cl);
    want(&s, OUT, path_out);
    want(&s, ERR, path_err);
    loop(&s, &sig);
    session_done(&s);
    if (s.failed) {
        *e = s.error;
        return -1;
    }
    return sig;
}

/* The streams are over; the exec object with the exit follows at once, unless the server is away. */
static int wait_exit(struct client *cl, const char *base, json_t **ret, int *ret_signal, struct err *e)
{
    auto_free char *path = mem_printf("%s?wait=exit&timeout_s=%d", base, WAIT_S);
    int64_t give_up = clock_boot_ms() + PATIENCE_MS;

    for (;;) {
        int r = client_json(cl, "GET", path, NULL, ret, e);
        if (r == 0 && !json_is_null(json_object_get(*ret, "exit")))
            return 0;
        if (r == 0) {
            json_decref(*ret);
            *ret = NULL;
            give_up = clock_boot_ms() + PATIENCE_MS;
        } else if (!err_row(e->code)->retryable || clock_boot_ms() > give_up) {
            return -1;
        } else {
            (void)poll(NULL, 0, PAUSE_MS);
        }
        *ret_signal = attach_signal();
        if (*ret_signal != 0)
            return 0;
    }
}

int attach_run(struct client *cl, const struct attach *a, json_t **ret_exec, int *ret_signal, struct err *e)
{
    auto_free char *out = mem_printf("%s/stdout?follow=true", a->base);
    auto_free char *err = mem_printf("%s/stderr?follow=true", a->base);
    struct session s;

    *ret_exec = NULL;
    *ret_signal = 0;
    attach_catch_signals();
    if (a->tty && term_raw(a->use_stdin, e) < 0)
        return -1;
    session_init(&s, cl);
    s.a = a;
    want(&s, OUT, out);
    want(&s, ERR, a->tty ? NULL : err);
    loop(&s, ret_signal);
    session_done(&s);
    term_restore();
    if (s.failed) {
        *e = s.error;
        return -1;
    }
    return *ret_signal != 0 ? 0 : wait_exit(cl, a->base, ret_exec, ret_signal, e);
}
