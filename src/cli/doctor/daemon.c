/*
 * daemon.c - the daemon, if one runs on this host: asked for its health, which needs no token
 */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/doctor/doctor.h"

#define PATIENCE_S 10L
#define ANSWER_MAX 65536

static size_t take(char *p, size_t size, size_t n, void *ctx)
{
    return buf_add(ctx, p, size * n) < 0 ? 0 : size * n;
}

/* Its own address, as the configuration has it; "every address" is reached by the loopback one. */
static void url_of(const char *listen, char *out, size_t size)
{
    const char *colon = strrchr(listen, ':');
    size_t host = colon != NULL ? (size_t)(colon - listen) : 0;
    bool every = host == 0 || strncmp(listen, "0.0.0.0:", 8) == 0 || strncmp(listen, "[::]:", 5) == 0;

    snprintf(out, size, "http://%.*s%s/v1/health", every ? 9 : (int)host,
             every ? "127.0.0.1" : listen, colon != NULL ? colon : "");
}

void doctor_check_daemon(struct doctor *d)
{
    auto_buf body = {0};
    char url[300];

    if (d->conf.listen[0] == '\0' || strncmp(d->conf.listen, "unix:", 5) == 0)
        return;
    buf_init(&body, ANSWER_MAX);
    url_of(d->conf.listen, url, sizeof url);
    CURL *h = curl_easy_init();
    if (h == NULL)
        return;
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_TIMEOUT, PATIENCE_S);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_PROXY, "");
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, &body);
    CURLcode r = curl_easy_perform(h);
    curl_easy_cleanup(h);
    json_t *answer = r == CURLE_OK ? json_loads(buf_str(&body), 0, NULL) : NULL;
    const char *status = answer != NULL ? json_string_value(json_object_get(answer, "status")) : NULL;
    if (status == NULL) {
        json_decref(answer);
    } else {
        d->daemon = answer;
        if (strcmp(status, "ok") == 0)
            doctor_ok(d, "daemon", "answers at %s: ok", d->conf.listen);
        else
            doctor_bad(d, "daemon", FINDING_DEGRADED, "some calls fail",
                       "look at its log: journalctl -u quicksand, or <data_dir>/quicksandd.log",
                       "answers at %s: %s", d->conf.listen, status);
    }
}
