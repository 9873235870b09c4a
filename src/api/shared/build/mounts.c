/*
 * mounts.c - reading RUN --mount=type=...,key=value
 *
 * The value is a line of CSV, as BuildKit takes it: a part with a comma stands in double quotes.
 */
#include <stdlib.h>
#include <string.h>

#include "api/shared/build/run.h"
#include "base/mem.h"

#define ID_MAX 65535UL

struct option {
    char *key, *value;                  /* value NULL = there is no '=' */
};

/* The next part of the line into *ret, which owns it; false at the end. */
static bool next_option(const char **at, struct option *ret)
{
    auto_buf text = {0};
    bool quoted = false;

    if (**at == '\0')
        return false;
    buf_init(&text, DF_TEXT_MAX);
    for (; **at != '\0' && (quoted || **at != ','); ++*at) {
        if (**at == '"')
            quoted = !quoted;
        else
            (void)buf_addc(&text, **at);
    }
    *at += **at == ',';
    const char *all = buf_str(&text), *eq = strchr(all, '=');
    ret->key = mem_strndup(all, eq != NULL ? (size_t)(eq - all) : strlen(all));
    ret->value = eq != NULL ? mem_strdup(eq + 1) : NULL;
    return true;
}

static bool is_one_of(const char *key, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcmp(key, *names) == 0)
            return true;
    return false;
}

static int read_bool(const struct df_instruction *in, const struct option *o, bool *ret, struct err *e)
{
    static const char *const yes[] = {"true", "1", NULL}, *const no[] = {"false", "0", NULL};

    if (o->value == NULL || is_one_of(o->value, yes))
        *ret = true;
    else if (is_one_of(o->value, no))
        *ret = false;
    else
        return df_fail(in, e, "--mount: %s is true or false, not '%.40s'", o->key, o->value);
    return 0;
}

static int read_number(const struct df_instruction *in, const struct option *o, int base, unsigned long most, unsigned long *ret,
                       struct err *e)
{
    char *end = NULL;

    *ret = o->value != NULL && *o->value >= '0' && *o->value <= '9' ? strtoul(o->value, &end, base) : most + 1;
    if (end == NULL || *end != '\0' || *ret > most)
        return df_fail(in, e, base == 8 ? "--mount: %s is '%.20s', which is no octal number up to %lo"
                                        : "--mount: %s is '%.20s', which is no number up to %lu",
                       o->key, o->value != NULL ? o->value : "", most);
    return 0;
}

static void take(char **into, struct option *o)
{
    free(*into);
    *into = o->value != NULL ? take_ptr(&o->value) : mem_strdup("");
}

static int read_sharing(const struct df_instruction *in, const struct option *o, struct mount *m, struct err *e)
{
    static const char *const names[] = {"shared", "private", "locked"};

    for (size_t i = 0; o->value != NULL && i < array_len(names); i++)
        if (strcmp(o->value, names[i]) == 0) {
            m->sharing = (enum mount_sharing)i;
            return 0;
        }
    return df_fail(in, e, "--mount: sharing is shared, private or locked, not '%.40s'", o->value != NULL ? o->value : "");
}

/* Which keys a type knows. */
static bool is_known(enum mount_type type, const char *key)
{
    static const char *const keys[][12] = {
        [MOUNT_BIND] = {"target", "dst", "destination", "source", "src", "from", "rw", "readwrite", "ro", "readonly", NULL},
        [MOUNT_CACHE] = {"target", "dst", "destination", "source", "from", "id", "sharing", "mode", "uid", "gid", "ro", NULL},
        [MOUNT_TMPFS] = {"target", "dst", "destination", "size", NULL},
        [MOUNT_SECRET] = {"target", "dst", "destination", "id", "required", "env", "mode", "uid", "gid", NULL},
    };

    return is_one_of(key, keys[type]) || (type == MOUNT_CACHE && strcmp(key, "readonly") == 0);
}

static int read_option(struct build *b, const struct df_instruction *in, struct option *o, struct mount *m, struct err *e)
{
    static const char *const targets[] = {"target", "dst", "destination", NULL}, *const sources[] = {"source", "src", NULL};
    unsigned long number;

    if (strcmp(o->key, "type") == 0)
        return 0;
    if (!is_known(m->type, o->key))
        return df_fail(in, e, "--mount: this type has no '%.40s'", o->key);
    if (is_one_of(o->key, targets))
        take(&m->target, o);
    else if (is_one_of(o->key, sources))
        take(&m->source, o);
    else if (strcmp(o->key, "from") == 0)
        take(&m->from, o);
    else if (strcmp(o->key, "id") == 0)
        take(&m->id, o);
    else if (strcmp(o->key, "env") == 0)
        take(&m->env, o);
    else if (strcmp(o->key, "sharing") == 0)
        return read_sharing(in, o, m, e);
    else if (strcmp(o->key, "required") == 0)
        return read_bool(in, o, &m->is_required, e);
    else if (strcmp(o->key, "mode") == 0) {
        if (read_number(in, o, 8, 07777, &number, e) < 0)
            return -1;
        m->mode = (int)number;
    } else if (strcmp(o->key, "uid") == 0)
        return read_number(in, o, 10, ID_MAX, &m->uid, e);
    else if (strcmp(o->key, "gid") == 0)
        return read_number(in, o, 10, ID_MAX, &m->gid, e);
    else if (strcmp(o->key, "size") == 0)
        operation_log(b->operation, "(size of a tmpfs is not kept: the step's disk is its limit)");
    else if (strcmp(o->key, "ro") == 0 || strcmp(o->key, "readonly") == 0)
        return read_bool(in, o, &m->is_read_only, e);
    return 0;
}

static int read_type(const struct df_instruction *in, const char *value, struct mount *m, struct err *e)
{
    static const char *const names[] = {"bind", "cache", "tmpfs", "secret"};
    struct option o;
    int r = 0;

    for (const char *at = value; r == 0 && next_option(&at, &o);) {
        if (strcmp(o.key, "type") == 0) {
            size_t i = 0;
            while (i < array_len(names) && (o.value == NULL || strcmp(o.value, names[i]) != 0))
                i++;
            m->type = (enum mount_type)i;
            if (o.value != NULL && strcmp(o.value, "ssh") == 0)
                r = df_fail(in, e, "--mount=type=ssh: builds have no agent; give the key as a secret");
            else if (i == array_len(names))
                r = df_fail(in, e, "--mount is of type bind, cache, tmpfs or secret, not '%.40s'",
                            o.value != NULL ? o.value : "");
        }
        free(o.key);
        free(o.value);
    }
    return r;
}

/* The last part of a path. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static int complete_secret(struct build *b, const struct df_instruction *in, struct mount *m, struct err *e)
{
    if (m->id == NULL && m->target != NULL)
        m->id = mem_strdup(last_part(m->target));
    if (m->id == NULL || *m->id == '\0')
        return df_fail(in, e, "--mount=type=secret has no id");
    if (m->target == NULL && m->env == NULL)
        m->target = mem_printf("/run/secrets/%s", m->id);
    m->secret = json_string_value(json_object_get(b->secrets, m->id));
    if (m->secret == NULL && m->is_required)
        return df_fail(in, e, "there is no secret '%.60s', which is required", m->id);
    return 0;
}

static int complete(struct build *b, const struct df_instruction *in, struct mount *m, struct err *e)
{
    if (m->type == MOUNT_SECRET && complete_secret(b, in, m, e) < 0)
        return -1;
    if (m->target == NULL && m->type == MOUNT_SECRET)
        return 0;
    if (m->target == NULL || *m->target == '\0')
        return df_fail(in, e, "--mount has no target");
    auto_free char *whole = build_path(build_stage(b), m->target);
    if (whole[strspn(whole, "/.")] == '\0')
        return df_fail(in, e, "--mount: nothing can be mounted over the root");
    free(m->target);
    m->target = take_ptr(&whole);
    if (m->type == MOUNT_CACHE && m->id == NULL)
        m->id = mem_strdup(m->target);
    if (m->id != NULL && strlen(m->id) > 255)
        return df_fail(in, e, "--mount: the id is longer than 255 bytes");
    if (m->source == NULL)
        m->source = mem_strdup("/");
    return 0;
}

int mount_read(struct build *b, const struct df_instruction *in, const char *value, struct mount *ret, struct err *e)
{
    struct mount m = {.type = MOUNT_BIND};
    struct option o;

    int r = read_type(in, value, &m, e);
    m.mode = m.type == MOUNT_SECRET ? 0400 : 0755;
    for (const char *at = value; r == 0 && next_option(&at, &o);) {
        char *expanded = o.value != NULL ? build_expand(b, o.value, e) : NULL;
        r = o.value != NULL && expanded == NULL ? -1 : 0;
        free(o.value);
        o.value = expanded;
        if (r == 0)
            r = read_option(b, in, &o, &m, e);
        free(o.key);
        free(o.value);
    }
    if (r == 0)
        r = complete(b, in, &m, e);
    if (r < 0) {
        mount_done(&m);
        return -1;
    }
    *ret = m;
    return 0;
}

void mount_done(struct mount *m)
{
    free(m->id);
    free(m->from);
    free(m->source);
    free(m->target);
    free(m->env);
}

/* Of a secret the value is not in it, of a cache not what it holds. */
json_t *mount_key(const struct mount *m)
{
    json_t *o = json_object();

    (void)json_object_set_new(o, "type", json_integer(m->type));
    (void)json_object_set_new(o, "target", js_string_or_null(m->target));
    (void)json_object_set_new(o, "env", js_string_or_null(m->env));
    if (m->type == MOUNT_BIND)
        (void)json_object_set_new(o, "layer", json_string(m->layer));
    else
        (void)json_object_set_new(o, "id", js_string_or_null(m->id));
    return o;
}
