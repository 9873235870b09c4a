/*
 * config.c - finding the server
 */
#include "cli/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define URL_DEFAULT "http://127.0.0.1:7070"
#define ADMIN_TOKEN "/var/lib/quicksand/control/admin-token"
#define CONFIG_MAX 8192

static char *trim(char *s)
{
    s += strspn(s, " \t");
    size_t n = strlen(s);
    while (n > 0 && strchr(" \t\r\n", s[n - 1]) != NULL)
        s[--n] = '\0';
    return s;
}

static int set(char *to, size_t size, const char *name, const char *value, struct err *e)
{
    if (strlen(value) >= size)
        return err_set(e, ERR_INVALID, "%s is longer than %zu bytes", name, size - 1);
    memcpy(to, value, strlen(value) + 1);
    return 0;
}

int cli_config_parse(struct cli_config *c, char *text, struct err *e)
{
    char *save = NULL;
    int number = 0;

    for (char *line = text; line != NULL; line = save) {
        save = strchr(line, '\n');
        if (save != NULL)
            *save++ = '\0';
        number++;
        line = trim(line);
        if (*line == '\0' || *line == '#')
            continue;
        char *eq = strchr(line, '=');
        if (eq == NULL)
            return err_set(e, ERR_INVALID, "line %d: no '='", number);
        *eq = '\0';
        char *name = trim(line), *value = trim(eq + 1);
        int r;
        if (strcmp(name, "url") == 0)
            r = set(c->url, sizeof c->url, name, value, e);
        else if (strcmp(name, "token") == 0)
            r = set(c->token, sizeof c->token, name, value, e);
        else if (strcmp(name, "ca") == 0)
            r = set(c->ca_file, sizeof c->ca_file, name, value, e);
        else
            r = err_set(e, ERR_INVALID, "line %d: unknown key '%.40s' (url, token, ca)", number, name);
        if (r < 0)
            return -1;
    }
    return 0;
}

/* 0 when there is no such file. */
static int read_small(const char *path, char *out, size_t size, struct stat *st, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(e, errno, "open %s", path);
    ssize_t n = fstat(fd, st) < 0 ? -1 : read(fd, out, size - 1);
    int error = errno;
    (void)close(fd);
    if (n < 0)
        return err_sys(e, error, "read %s", path);
    if ((size_t)n == size - 1)
        return err_set(e, ERR_TOO_LARGE, "%s is too large", path);
    out[n] = '\0';
    return 1;
}

static int load_file(struct cli_config *c, struct err *e)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char path[1024], text[CONFIG_MAX];
    struct stat st;

    if (xdg != NULL && *xdg != '\0')
        (void)snprintf(path, sizeof path, "%s/quicksand/config", xdg);
    else if (home != NULL && *home != '\0')
        (void)snprintf(path, sizeof path, "%s/.config/quicksand/config", home);
    else
        return 0;
    int r = read_small(path, text, sizeof text, &st, e);
    if (r <= 0)
        return r;
    if ((st.st_mode & 077) != 0)
        return err_set(e, ERR_INVALID, "%s holds a token and must not be readable by others (chmod 600)", path);
    if (cli_config_parse(c, text, e) < 0)
        return err_wrap(e, "%s", path);
    return 0;
}

int cli_config_load(struct cli_config *c, struct err *e)
{
    const char *url = getenv("QUICKSAND_URL"), *token = getenv("QUICKSAND_TOKEN"), *ca = getenv("QUICKSAND_CA");
    char text[sizeof c->token];
    struct stat st;

    *c = (struct cli_config){.url = URL_DEFAULT};
    if ((url == NULL || token == NULL) && load_file(c, e) < 0)
        return -1;
    if (url != NULL && set(c->url, sizeof c->url, "QUICKSAND_URL", url, e) < 0)
        return -1;
    if (token != NULL && set(c->token, sizeof c->token, "QUICKSAND_TOKEN", token, e) < 0)
        return -1;
    if (ca != NULL && set(c->ca_file, sizeof c->ca_file, "QUICKSAND_CA", ca, e) < 0)
        return -1;
    if (c->token[0] == '\0' && geteuid() == 0) {
        int r = read_small(ADMIN_TOKEN, text, sizeof text, &st, e);
        if (r < 0)
            return -1;
        if (r > 0)
            (void)snprintf(c->token, sizeof c->token, "%s", trim(text));
    }
    if (c->token[0] == '\0')
        return err_set(e, ERR_UNAUTHENTICATED,
                       "no token: set QUICKSAND_TOKEN, or write 'token = ...' to ~/.config/quicksand/config");
    size_t n = strlen(c->url);
    while (n > 0 && c->url[n - 1] == '/')
        c->url[--n] = '\0';
    return 0;
}
