/*
 * operation.c - following an operation of the server to its end
 */
#include "cli/operation.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define PATIENCE_MS 60000       /* for a server that restarts: the operation is there again afterwards */
#define PAUSE_MS 500

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    interrupted = sig;
}

/* A line of the server's, which may hold whatever a command printed: control characters would act on our terminal. */
static void print_line(const char *text)
{
    if (isatty(STDERR_FILENO) == 1)
        fputs("\033[K", stderr);        /* what show_progress wrote */
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++)
        fputc((*p < ' ' && *p != '\t') || *p == 127 ? '?' : *p, stderr);
    fputc('\n', stderr);
}

static int print_log(struct client *cl, const char *id, long long *after, bool *ret_done, bool quiet, struct err *e)
{
    auto_free char *path = client_path("/v1/operations/%s/log?wait_s=2&after=%lld", id, *after);
    json_t *page = NULL, *line;
    size_t i;

    if (client_json(cl, "GET", path, NULL, &page, e) < 0)
        return -1;
    json_array_foreach(json_object_get(page, "items"), i, line)
    {
        const char *text = json_string_value(json_object_get(line, "text"));
        if (!quiet && text != NULL)
            print_line(text);
    }
    *after = json_integer_value(json_object_get(page, "next"));
    *ret_done = json_is_true(json_object_get(page, "done"));
    json_decref(page);
    return 0;
}

static int take_result(json_t *operation, json_t **ret, struct err *e)
{
    const json_t *error = json_object_get(operation, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *code = json_string_value(json_object_get(error, "code"));

    if (message != NULL) {
        (void)err_set(e, err_code_from_name(code != NULL ? code : ""), "%s", message);
        json_decref(operation);
        return -1;
    }
    *ret = operation;
    return 0;
}

/* How far it is, on a terminal: a line that the next one takes the place of. */
static void show_progress(struct client *cl, const char *id)
{
    auto_free char *path = client_path("/v1/operations/%s", id);
    json_t *operation = NULL;

    if (client_json(cl, "GET", path, NULL, &operation, NULL) < 0)
        return;
    const json_t *progress = json_object_get(operation, "progress");
    double bytes = json_number_value(json_object_get(progress, "bytes"));
    double total = json_number_value(json_object_get(progress, "total_bytes"));
    if (total > 0)
        fprintf(stderr, "\r\033[K%.1f of %.1f MB\r", bytes / 1e6, total / 1e6);
    json_decref(operation);
}

/* One look at the log. A server that is away is waited for, `*left_ms` at most. */
static int look(struct client *cl, const char *id, long long *after, bool *ret_done, bool quiet, int64_t *left_ms, struct err *e)
{
    int r = print_log(cl, id, after, ret_done, quiet, e);

    if (r == 0) {
        *left_ms = PATIENCE_MS;
    } else if (e->code == ERR_UNAVAILABLE && *left_ms > 0 && interrupted == 0) {
        (void)poll(NULL, 0, PAUSE_MS);
        *left_ms -= PAUSE_MS;
        r = 0;
    }
    return r;
}

int operation_follow(struct client *cl, json_t *operation, bool quiet, json_t **ret, struct err *e)
{
    const char *id_text = json_string_value(json_object_get(operation, "id"));
    auto_free char *id = mem_strdup(id_text != NULL ? id_text : "");
    struct sigaction act = {.sa_handler = on_interrupt}, old;
    const bool is_terminal = !quiet && isatty(STDERR_FILENO) == 1;
    long long after = 0;
    int64_t left_ms = PATIENCE_MS;
    bool done = false;
    int r = 0;

    json_decref(operation);
    (void)sigaction(SIGINT, &act, &old);
    while (r == 0 && !done) {
        r = look(cl, id, &after, &done, quiet, &left_ms, e);
        if (r == 0 && !done && is_terminal)
            show_progress(cl, id);
        if (interrupted != 0) {
            auto_free char *path = client_path("/v1/operations/%s/cancel", id);
            interrupted = 0;
            (void)client_json(cl, "POST", path, NULL, NULL, NULL);
        }
    }
    (void)sigaction(SIGINT, &old, NULL);
    if (is_terminal)
        fputs("\033[K", stderr);
    if (r < 0)
        return -1;
    auto_free char *path = client_path("/v1/operations/%s", id);
    json_t *ended = NULL;
    if (client_json(cl, "GET", path, NULL, &ended, e) < 0)
        return -1;
    return take_result(ended, ret, e);
}
