/*
 * copy_owner.c - owners by name, out of the files of an image
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "image/copy.h"

#define FILE_MAX (1U << 20)
#define ID_MAX 65535UL

/* The n-th field of a line of fields divided by ':', as a number; false if it is none or out of range. */
static bool field_id(const char *line, size_t len, unsigned n, unsigned long *ret)
{
    const char *at = line, *end = line + len;

    for (; n > 0; n--) {
        at = memchr(at, ':', (size_t)(end - at));
        if (at++ == NULL)
            return false;
    }
    unsigned long v = 0;
    const char *begin = at;
    for (; at < end && *at >= '0' && *at <= '9' && v <= ID_MAX; at++)
        v = v * 10 + (unsigned long)(*at - '0');
    *ret = v;
    return at > begin && (at == end || *at == ':') && v <= ID_MAX;
}

/* The line of a file that begins with "name:" or, with `id` >= 0, whose third field is that number. */
static const char *find_line(const char *text, size_t n, const char *name, long id, size_t *ret_len)
{
    size_t name_len = strlen(name);

    for (size_t at = 0; at < n;) {
        const char *line = text + at;
        const char *nl = memchr(line, '\n', n - at);
        size_t len = nl != NULL ? (size_t)(nl - line) : n - at;
        unsigned long v;
        at += len + 1;
        if (id < 0 ? len > name_len && memcmp(line, name, name_len) == 0 && line[name_len] == ':'
                   : field_id(line, len, 2, &v) && v == (unsigned long)id) {
            *ret_len = len;
            return line;
        }
    }
    return NULL;
}

static bool is_number(const char *text, unsigned long *ret)
{
    return field_id(text, strlen(text), 0, ret) && strchr(text, ':') == NULL;
}

/* A number that is_number does not take. */
static bool is_too_large(const char *text)
{
    return *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}

int copy_owner(const struct chain_dir *base, const char *text, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
    char user[128];
    unsigned long uid = 0, gid = 0;
    const char *line = NULL;
    size_t n = 0, len = 0;

    size_t user_len = strcspn(text, ":");
    if (user_len >= sizeof user)
        return err_set(e, ERR_INVALID, "the user of '%.60s…' is over %zu bytes long", text, sizeof user - 1);
    memcpy(user, text, user_len);
    user[user_len] = '\0';
    const char *group = strchr(text, ':') != NULL ? strchr(text, ':') + 1 : NULL;
    auto_free char *passwd = chain_read(base, "etc/passwd", FILE_MAX, &n);
    bool numeric = is_number(user, &uid);
    if (passwd != NULL)
        line = find_line(passwd, n, user, numeric ? (long)uid : -1, &len);
    if (line != NULL) {
        if (!field_id(line, len, 2, &uid) || !field_id(line, len, 3, &gid))
            return err_set(e, ERR_INVALID, "the ids of '%s' in /etc/passwd of the image are not from 0 to %lu", user, ID_MAX);
    } else if (!numeric && is_too_large(user)) {
        return err_set(e, ERR_INVALID, "the id %s is over %lu, the largest one", user, ID_MAX);
    } else if (!numeric) {
        return err_set(e, ERR_NOT_FOUND, "the image has no user '%s'", user);
    } else {
        gid = uid;
    }
    if (group != NULL && !is_number(group, &gid)) {
        if (is_too_large(group))
            return err_set(e, ERR_INVALID, "the id %.60s is over %lu, the largest one", group, ID_MAX);
        size_t ngroups = 0;
        auto_free char *groups = chain_read(base, "etc/group", FILE_MAX, &ngroups);
        line = groups != NULL ? find_line(groups, ngroups, group, -1, &len) : NULL;
        if (line == NULL || !field_id(line, len, 2, &gid))
            return err_set(e, ERR_NOT_FOUND, "the image has no group '%s'", group);
    }
    *ret_uid = (uid_t)uid;
    *ret_gid = (gid_t)gid;
    return 0;
}
