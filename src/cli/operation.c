/*
 * operation.c - following an operation of the server to its end
 */
#include "cli/operation.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define WAIT_S 2

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    interrupted = sig;
}

/* A line of the server's, which may hold whatever a command printed: control characters would act on our terminal. */
static void print_line(const char *text)
{
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

int operation_follow(struct client *cl, json_t *operation, bool quiet, json_t **ret, struct err *e)
{
    const char *id_text = json_string_value(json_object_get(operation, "id"));
    auto_free char *id = mem_strdup(id_text != NULL ? id_text : "");
    struct sigaction act = {.sa_handler = on_interrupt}, old;
    long long after = 0;
    bool done = false;
    int r = 0;

    json_decref(operation);
    (void)sigaction(SIGINT, &act, &old);
    while (r == 0 && !done) {
        r = print_log(cl, id, &after, &done, quiet, e);
        if (interrupted != 0) {
            auto_free char *path = client_path("/v1/operations/%s/cancel", id);
            interrupted = 0;
            (void)client_json(cl, "POST", path, NULL, NULL, NULL);
        }
    }
    (void)sigaction(SIGINT, &old, NULL);
    if (r < 0)
        return -1;
    auto_free char *path = client_path("/v1/operations/%s", id);
    json_t *ended = NULL;
    if (client_json(cl, "GET", path, NULL, &ended, e) < 0)
        return -1;
    return take_result(ended, ret, e);
}
