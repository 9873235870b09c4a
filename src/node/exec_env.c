/*
 * exec_env.c - from a command and the sandbox's defaults to the block that init executes
 *
 * The environment: PATH; LANG unless LANG or LC_ALL is set by anyone; TERM on a terminal; what the
 * network policy has for programs: placeholders, and where the authorities are; then the defaults of the sandbox (image
 * first), then the command's own. The last value of a name wins and stands where the name first came. HOME is set by init,
 * which knows the user.
 */
#include "node/exec_env.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "ipc/exec_spec.h"
#include "ipc/fs_proto.h"

#define DEFAULT_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_LANG "LANG=C.UTF-8"
#define DEFAULT_TERM "TERM=xterm-256color"
#define DEFAULT_UMASK 022
#define USER_MAX 127            /* "name:group" */

struct env {
    struct map index;           /* name -> number of its entry, from 1 */
    char **vars;                /* owned, as are the texts */
    size_t n, size;
    size_t bytes;
};

static void env_done(struct env *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->vars[i]);
    free(v->vars);
    map_done(&v->index);
}

static int env_add(struct env *v, const char *field, const char *p, size_t len, struct err *e)
{
    const char *eq = memchr(p, '=', len);

    if (memchr(p, '\0', len) != NULL)
        return err_param(e, ERR_INVALID, field, "an environment variable contains a NUL byte");
    if (eq == NULL)
        return err_param(e, ERR_INVALID, field, "an environment variable has no '='");
    if (eq == p)
        return err_param(e, ERR_INVALID, field, "an environment variable has an empty name");
    /* Checked before anything is allocated for it. */
    if (len >= LIMIT_ENV_BYTES)
        return err_param(e, ERR_TOO_LARGE, field, "the environment is over %d bytes",
                         LIMIT_ENV_BYTES);

    auto_free char *name = mem_strndup(p, (size_t)(eq - p));
    size_t at = (size_t)(uintptr_t)map_get(&v->index, name);
    if (at > 0) {
        v->bytes -= strlen(v->vars[at - 1]) + 1;
        free(v->vars[at - 1]);
    } else {
        if (v->n == LIMIT_ENVC)
            return err_param(e, ERR_TOO_LARGE, field, "more than %d environment variables",
                             LIMIT_ENVC);
        if (v->n == v->size) {
            v->size = v->size == 0 ? 32 : v->size * 2;
            v->vars = mem_realloc(v->vars, v->size * sizeof *v->vars);
        }
        at = ++v->n;
        (void)map_put(&v->index, name, (void *)(uintptr_t)at);
    }
    v->vars[at - 1] = mem_strndup(p, len);
    v->bytes += len + 1;
    if (v->bytes > LIMIT_ENV_BYTES)
        return err_param(e, ERR_TOO_LARGE, field, "the environment is over %d bytes",
                         LIMIT_ENV_BYTES);
    return 0;
}

static bool names(const char *p, size_t len, const char *name)
{
    size_t n = strlen(name);

    return len > n && memcmp(p, name, n) == 0 && p[n] == '=';
}

static bool sets_language(const struct exec_env_input *in)
{
    const Quicksand__Node__Defaults *d = in->defaults;
    const Quicksand__Node__Command *c = in->command;

    for (size_t i = 0; d != NULL && i < d->n_env; i++)
        if (names(d->env[i], strlen(d->env[i]), "LANG") ||
            names(d->env[i], strlen(d->env[i]), "LC_ALL"))
            return true;
    for (size_t i = 0; i < c->n_env; i++)
        if (names((const char *)c->env[i].data, c->env[i].len, "LANG") ||
            names((const char *)c->env[i].data, c->env[i].len, "LC_ALL"))
            return true;
    return false;
}

/* Most programs read one file with everything, some one beside their own. */
static const char *const trust_env[] = {
    "SSL_CERT_FILE=" FS_TRUST_BUNDLE,      "REQUESTS_CA_BUNDLE=" FS_TRUST_BUNDLE, "CURL_CA_BUNDLE=" FS_TRUST_BUNDLE,
    "GIT_SSL_CAINFO=" FS_TRUST_BUNDLE,     "PIP_CERT=" FS_TRUST_BUNDLE,           "NPM_CONFIG_CAFILE=" FS_TRUST_BUNDLE,
    "AWS_CA_BUNDLE=" FS_TRUST_BUNDLE,      "CARGO_HTTP_CAINFO=" FS_TRUST_BUNDLE,  "NODE_EXTRA_CA_CERTS=" FS_TRUST_AUTHORITY,
    "DENO_CERT=" FS_TRUST_AUTHORITY,       "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=" FS_TRUST_JAVA,
};

static int add_network(const struct network_note *n, struct env *v, struct err *e)
{
    for (size_t i = 0; n->opens_tls && i < array_len(trust_env); i++)
        (void)env_add(v, "env", trust_env[i], strlen(trust_env[i]), NULL);
    for (size_t i = 0; i < n->nenv; i++)
        if (env_add(v, "network", n->env[i], strlen(n->env[i]), e) < 0)
            return -1;
    return 0;
}

static int build_env(const struct exec_env_input *in, struct env *v, struct err *e)
{
    const Quicksand__Node__Defaults *d = in->defaults;
    const Quicksand__Node__Command *c = in->command;

    (void)env_add(v, "env", DEFAULT_PATH, strlen(DEFAULT_PATH), NULL);
    if (!sets_language(in))
        (void)env_add(v, "env", DEFAULT_LANG, strlen(DEFAULT_LANG), NULL);
    if (in->tty)
        (void)env_add(v, "env", DEFAULT_TERM, strlen(DEFAULT_TERM), NULL);
    if (in->network != NULL && !in->helper && add_network(in->network, v, e) < 0)
        return -1;
    for (size_t i = 0; d != NULL && i < d->n_env; i++)
        if (env_add(v, "defaults.env", d->env[i], strlen(d->env[i]), e) < 0)
            return -1;
    for (size_t i = 0; i < c->n_env; i++)
        if (env_add(v, "env", (const char *)c->env[i].data, c->env[i].len, e) < 0)
            return -1;
    return 0;
}

/* argc + 1 owned texts, the last NULL. */
static int build_argv(const Quicksand__Node__Command *c, char **argv, struct err *e)
{
    size_t bytes = 0;

    for (size_t i = 0; i < c->n_argv; i++) {
        const ProtobufCBinaryData *a = &c->argv[i];
        if (a->len > 0 && memchr(a->data, '\0', a->len) != NULL)
            return err_param(e, ERR_INVALID, "argv", "argument %zu contains a NUL byte", i);
        if (a->len >= LIMIT_ARGV_BYTES || (bytes += a->len + 1) > LIMIT_ARGV_BYTES)
            return err_param(e, ERR_TOO_LARGE, "argv", "the arguments are over %d bytes",
                             LIMIT_ARGV_BYTES);
        argv[i] = mem_strndup(a->len > 0 ? (const char *)a->data : "", a->len);
    }
    return 0;
}

static int check_argc(const Quicksand__Node__Command *c, struct err *e)
{
    if (c->n_argv == 0)
        return err_param(e, ERR_INVALID, "argv", "the command is empty");
    if (c->argv[0].len == 0)
        return err_param(e, ERR_INVALID, "argv", "the program's name is empty");
    if (c->n_argv > LIMIT_ARGC)
        return err_param(e, ERR_TOO_LARGE, "argv", "more than %d arguments", LIMIT_ARGC);
    return 0;
}

static int check_cwd(const char *field, const ProtobufCBinaryData *p, struct err *e)
{
    if (p->len == 0)
        return 0;
    if (memchr(p->data, '\0', p->len) != NULL)
        return err_param(e, ERR_INVALID, field, "the working directory contains a NUL byte");
    if (p->data[0] != '/')
        return err_param(e, ERR_INVALID, field, "the working directory is not an absolute path");
    if (p->len >= LIMIT_PATH)
        return err_param(e, ERR_TOO_LARGE, field, "the working directory is longer than %d bytes",
                         LIMIT_PATH - 1);
    return 0;
}

static int check_user(const char *field, const char *user, struct err *e)
{
    if (strlen(user) > USER_MAX)
        return err_param(e, ERR_TOO_LARGE, field, "the user is longer than %d bytes", USER_MAX);
    return 0;
}

static int check_numbers(const Quicksand__Node__Command *c, struct err *e)
{
    if (c->has_umask && c->umask > 0777)
        return err_param(e, ERR_INVALID, "umask", "umask %#o is over 0777", c->umask);
    if (c->has_nice && (c->nice < 0 || c->nice > 19))
        return err_param(e, ERR_INVALID, "nice", "nice %d is not between 0 and 19", c->nice);
    return 0;
}

static void free_argv(char **argv)
{
    for (char **a = argv; *a != NULL; a++)
        free(*a);
    free(argv);
}

static int encode(const struct exec_spec *s, size_t bytes, struct buf *ret_spec, struct err *e)
{
    size_t len;
    void *out = buf_reserve(ret_spec, bytes);

    if (out == NULL || exec_spec_encode(s, out, bytes, &len) < 0)
        return err_param(e, ERR_TOO_LARGE, "argv", "arguments and environment are over %d bytes",
                         LIMIT_CHANNEL_MESSAGE);
    buf_grew(ret_spec, len);
    return 0;
}

int exec_env_build(const struct exec_env_input *in, struct buf *ret_spec, struct err *e)
{
    const Quicksand__Node__Command *c = in->command;
    const Quicksand__Node__Defaults *d = in->defaults;
    struct env env = {0};
    auto_free char *cwd = NULL;
    int r = -1;

    if (check_argc(c, e) < 0 || check_numbers(c, e) < 0)
        return -1;
    if (c->has_cwd && check_cwd("cwd", &c->cwd, e) < 0)
        return -1;
    if (c->user != NULL && check_user("user", c->user, e) < 0)
        return -1;

    bool own_cwd = c->has_cwd && c->cwd.len > 0;
    if (own_cwd)
        cwd = mem_strndup((const char *)c->cwd.data, c->cwd.len);
    else if (d != NULL && d->has_cwd)
        cwd = mem_strndup(d->cwd.len > 0 ? (const char *)d->cwd.data : "", d->cwd.len);
    char **argv = mem_zalloc((c->n_argv + 1) * sizeof *argv);
    map_init(&env.index);
    if (build_argv(c, argv, e) == 0 && build_env(in, &env, e) == 0) {
        struct exec_spec s = {
            .argc = (uint32_t)c->n_argv,
            .argv = (const char **)argv,
            .envc = (uint32_t)env.n,
            .envp = (const char **)env.vars,
            .cwd = cwd != NULL ? cwd : "",
            .user = c->user != NULL ? c->user : d != NULL && d->user != NULL ? d->user : "",
            .umask = c->has_umask ? c->umask : DEFAULT_UMASK,
            .nice = c->nice,
            .nofile = c->nofile != 0 ? c->nofile : d != NULL && !in->helper ? d->nofile : 0,
            .make_cwd = !own_cwd && cwd != NULL,
            .helper = in->helper,
        };
        size_t bytes = 1024 + strlen(s.cwd) + env.bytes + 4 * (env.n + c->n_argv);
        for (size_t i = 0; i < c->n_argv; i++)
            bytes += c->argv[i].len;
        r = encode(&s, bytes, ret_spec, e);
    }
    free_argv(argv);
    env_done(&env);
    return r;
}

static int check_probe(const Quicksand__Node__Probe *p, struct err *e)
{
    if (p->n_argv == 0 && p->check == NULL && (p->tcp_port < 1 || p->tcp_port > UINT16_MAX))
        return err_param(e, ERR_INVALID, "defaults.probe", "a probe has a command, a check or a port from 1 to %d",
                         UINT16_MAX);
    if (p->check != NULL && strlen(p->check) > LIMIT_PROBE_CHECK)
        return err_param(e, ERR_TOO_LARGE, "defaults.probe", "the check of a probe has %zu bytes, at most %d are accepted",
                         strlen(p->check), LIMIT_PROBE_CHECK);
    if (p->n_argv > LIMIT_ARGC)
        return err_param(e, ERR_TOO_LARGE, "defaults.probe", "more than %d arguments", LIMIT_ARGC);
    return 0;
}

int exec_env_check_defaults(const Quicksand__Node__Defaults *d, struct err *e)
{
    struct env env = {0};
    int r = 0;

    if (d->probe != NULL && check_probe(d->probe, e) < 0)
        return -1;

    if (d->has_cwd && check_cwd("defaults.cwd", &d->cwd, e) < 0)
        return -1;
    if (d->user != NULL && check_user("defaults.user", d->user, e) < 0)
        return -1;
    map_init(&env.index);
    for (size_t i = 0; r == 0 && i < d->n_env; i++)
        r = env_add(&env, "defaults.env", d->env[i], strlen(d->env[i]), e);
    env_done(&env);
    return r;
}
