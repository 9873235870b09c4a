/*
 * files.c - files: the table of operations, and those whose answer is a small JSON object
 *
 * Every path is resolved in the sandbox by the helper that runs there; nothing here opens one.
 */
#include <string.h>

#include "api/rest/fs_ask.h"
#include "api/rest/fs_helper.h"
#include "api/rest/handlers.h"
#include "api/rest/op.h"
#include "base/mem.h"

static void answer_path(struct call *c, const json_t *out)
{
    json_t *o = json_object();

    /* What the request named comes back, in the form in which it can be named again. */
    for (const char *const *key = (const char *const[]){"path", "path_b64", "to", "to_b64", NULL}; *key != NULL; key++) {
        json_t *v = json_object_get(c->body, *key);
        if (v != NULL)
            json_object_set(o, strncmp(*key, "to", 2) == 0 ? (strcmp(*key, "to") == 0 ? "path" : "path_b64") : *key, v);
    }
    call_reply(c, 200, o);
}

static void answer_empty(struct call *c, const json_t *out)
{
    call_reply_empty(c, 204);
}

static void answer_entry(struct call *c, const json_t *out)
{
    call_reply(c, 200, fs_entry(out));
}

static void answer_entries(struct call *c, const json_t *out)
{
    call_reply(c, 200, fs_entries(out, (size_t)call_query_int(c, "limit", LIMIT_LIST)));
}

static void answer_hash(struct call *c, const json_t *out)
{
    json_t *o = json_object();

    json_object_set(o, "sha256", json_object_get(out, "sha256"));
    json_object_set(o, "size", json_object_get(out, "size"));
    call_reply(c, 200, o);
}

static void file_stat(struct call *c)
{
    fs_ask(c, "Stat", fs_query_path(c), call_query(c, "path"), NULL, answer_entry);
}

static void file_hash(struct call *c)
{
    fs_ask(c, "Hash", fs_query_path(c), call_query(c, "path"), NULL, answer_hash);
}

/* What is left of `after` below the directory, which is how the helper names it; NULL if it is not below. */
static const char *below(const char *directory, const char *after)
{
    size_t n = strlen(directory);

    if (after[0] != '/')
        return after;
    while (n > 0 && directory[n - 1] == '/')
        n--;
    return strncmp(after, directory, n) == 0 && after[n] == '/' ? after + n + 1 : NULL;
}

static void file_list(struct call *c)
{
    json_t *args = fs_query_path(c);
    const char *after = call_query(c, "after");
    struct err e;

    if (after != NULL) {
        after = below(call_query(c, "path"), after);
        if (after == NULL) {
            (void)err_param(&e, ERR_INVALID, "after", "after is not below path");
            json_decref(args);
            call_fail(c, &e);
            return;
        }
    }
    json_object_set_new(args, "depth", json_integer((json_int_t)call_query_int(c, "depth", 1)));
    json_object_set_new(args, "limit", json_integer((json_int_t)call_query_int(c, "limit", LIMIT_LIST) + 1));
    json_object_set_new(args, "hidden", json_boolean(call_query_bool(c, "hidden", true)));
    if (after != NULL)
        fs_put_path(args, "after", after, strlen(after));
    fs_ask(c, "ListFiles", args, call_query(c, "path"), NULL, answer_entries);
}

static void file_delete(struct call *c)
{
    json_t *args = fs_query_path(c);

    json_object_set_new(args, "recursive", json_boolean(call_query_bool(c, "recursive", false)));
    fs_ask(c, "Remove", args, call_query(c, "path"), NULL, answer_empty);
}

/* Asks if everything of the body could be taken, else fails. */
static void ask_or_fail(struct call *c, int taken, const char *op, json_t *args, const struct err *e)
{
    if (taken == 0) {
        fs_ask(c, op, args, call_string(c, "path", call_string(c, "from", NULL)), NULL, answer_path);
        return;
    }
    json_decref(args);
    call_fail(c, e);
}

static void file_mkdir(struct call *c)
{
    json_t *args = json_object();
    struct err e;
    int r = fs_body_path(c, "path", args, "path", &e);

    json_object_set_new(args, "parents", json_boolean(call_bool(c, "parents", true)));
    if (r == 0)
        r = fs_put_mode(call_string(c, "mode", NULL), args, &e);
    ask_or_fail(c, r, "MakeDirectory", args, &e);
}

static void file_move(struct call *c)
{
    json_t *args = json_object();
    struct err e;
    int r = fs_body_path(c, "from", args, "from", &e);

    if (r == 0)
        r = fs_body_path(c, "to", args, "to", &e);
    json_object_set_new(args, "overwrite", json_boolean(call_bool(c, "overwrite", true)));
    ask_or_fail(c, r, "Move", args, &e);
}

static void file_chmod(struct call *c)
{
    json_t *args = json_object();
    struct err e;
    int r = fs_body_path(c, "path", args, "path", &e);

    if (r == 0)
        r = fs_put_mode(call_string(c, "mode", NULL), args, &e);
    ask_or_fail(c, r, "Chmod", args, &e);
}

static void file_chown(struct call *c)
{
    json_t *args = json_object();
    struct err e;
    int r = fs_body_path(c, "path", args, "path", &e);

    json_object_set_new(args, "uid", json_integer((json_int_t)call_int(c, "uid", -1)));
    json_object_set_new(args, "gid", json_integer((json_int_t)call_int(c, "gid", -1)));
    ask_or_fail(c, r, "Chown", args, &e);
}

static void file_symlink(struct call *c)
{
    json_t *args = json_object();
    struct err e;
    int r = fs_body_path(c, "path", args, "path", &e);
    const char *target = call_string(c, "target", "");

    json_object_set_new(args, "target", json_string(target));
    ask_or_fail(c, r, "Symlink", args, &e);
}

/* --- the table ----------------------------------------------------------------------------------------------------- */

#define PATH_MAX_BYTES (LIMIT_PATH - 1)
#define QUERY_PATH                                                                                              \
    {"path", FIELD_STRING, FIELD_REQUIRED | FIELD_ABS_PATH, 1, PATH_MAX_BYTES, NULL,                            \
     "absolute inside the sandbox; percent-encoded bytes, any file name"}
#define BODY_PATH(name)                                                                                         \
    {name, FIELD_STRING, FIELD_ABS_PATH, 1, PATH_MAX_BYTES, NULL, "absolute inside the sandbox"},               \
    {name "_b64", FIELD_STRING, 0, 1, 2 * PATH_MAX_BYTES, NULL, "the same as base64, for a path that is not UTF-8"}

static const struct field path_query[] = {QUERY_PATH};

static const struct field put_query[] = {
    QUERY_PATH,
    {"mode", FIELD_STRING, 0, 1, 5, NULL, "octal, of a new file; default 0644; an existing file keeps its own"},
    {"parents", FIELD_BOOL, 0, 0, 0, NULL, "make missing directories; default true"},
    {"exclusive", FIELD_BOOL, 0, 0, 0, NULL, "fail if it exists; default false"},
};

static const struct field file_list_query[] = {
    QUERY_PATH,
    {"depth", FIELD_INT, 0, 1, 64, NULL, "levels below the directory; default 1"},
    {"limit", FIELD_INT, 0, 1, LIMIT_LIST, NULL, "default 1000"},
    {"after", FIELD_STRING, 0, 1, PATH_MAX_BYTES, NULL, "go on after this path (next of the answer before)"},
    {"hidden", FIELD_BOOL, 0, 0, 0, NULL, "names that begin with a dot too; default true"},
};

static const struct field delete_query[] = {
    QUERY_PATH,
    {"recursive", FIELD_BOOL, 0, 0, 0, NULL, "a directory with everything in it; default false"},
};

static const struct field watch_query[] = {
    QUERY_PATH,
    {"recursive", FIELD_BOOL, 0, 0, 0, NULL, "the whole tree below; default false"},
    {"timeout_s", FIELD_NUMBER, 0, 0, (double)LIMIT_LIFETIME_MAX, NULL, "end after so long; default never"},
};

static const struct field mkdir_body[] = {
    BODY_PATH("path"),
    {"parents", FIELD_BOOL, 0, 0, 0, NULL, "make missing directories, and accept one that is there; default true"},
    {"mode", FIELD_STRING, 0, 1, 5, NULL, "octal; default 0755"},
};

static const struct field move_body[] = {
    BODY_PATH("from"),
    BODY_PATH("to"),
    {"overwrite", FIELD_BOOL, 0, 0, 0, NULL, "replace what is there; default true"},
};

static const struct field chmod_body[] = {
    BODY_PATH("path"),
    {"mode", FIELD_STRING, FIELD_REQUIRED, 1, 5, NULL, "octal"},
};

static const struct field chown_body[] = {
    BODY_PATH("path"),
    {"uid", FIELD_INT, FIELD_REQUIRED, 0, 4294967294.0, NULL, "owner"},
    {"gid", FIELD_INT, FIELD_REQUIRED, 0, 4294967294.0, NULL, "group"},
};

static const struct field symlink_body[] = {
    BODY_PATH("path"),
    {"target", FIELD_STRING, FIELD_REQUIRED, 1, PATH_MAX_BYTES, NULL, "what the link says, as it is"},
};

static const struct field batch_body[] = {
    {"ops", FIELD_JSON, FIELD_REQUIRED, 0, 0, NULL, "array of {op: read|write|stat|list|mkdir|remove|move, ...}"},
};

#define FIELDS(f) (f), array_len(f)
#define NO_FIELDS NULL, 0
#define FILES "/v1/sandboxes/{id}/files"

const struct op rest_file_ops[] = {
    {"file.get", "GET", FILES, "files:read", OP_STREAM, "Read a file, or a range of it", FIELDS(path_query), NO_FIELDS,
     200, file_get},
    {"file.put", "PUT", FILES, "files:write", OP_RAW_BODY, "Write a file, atomically", FIELDS(put_query), NO_FIELDS,
     201, file_put},
    {"file.delete", "DELETE", FILES, "files:write", 0, "Remove a file or a directory", FIELDS(delete_query), NO_FIELDS,
     204, file_delete},
    {"file.stat", "GET", FILES "/stat", "files:read", 0, "Describe a path, not following a link", FIELDS(path_query),
     NO_FIELDS, 200, file_stat},
    {"file.list", "GET", FILES "/list", "files:read", 0, "List a directory, sorted by path", FIELDS(file_list_query),
     NO_FIELDS, 200, file_list},
    {"file.hash", "GET", FILES "/hash", "files:read", 0, "SHA-256 and size of a file", FIELDS(path_query), NO_FIELDS,
     200, file_hash},
    {"file.mkdir", "POST", FILES "/mkdir", "files:write", 0, "Make a directory", NO_FIELDS, FIELDS(mkdir_body), 200,
     file_mkdir},
    {"file.move", "POST", FILES "/move", "files:write", 0, "Move or rename", NO_FIELDS, FIELDS(move_body), 200,
     file_move},
    {"file.chmod", "POST", FILES "/chmod", "files:write", 0, "Set the mode", NO_FIELDS, FIELDS(chmod_body), 200,
     file_chmod},
    {"file.chown", "POST", FILES "/chown", "files:write", 0, "Set owner and group", NO_FIELDS, FIELDS(chown_body), 200,
     file_chown},
    {"file.symlink", "POST", FILES "/symlink", "files:write", 0, "Make a symbolic link", NO_FIELDS,
     FIELDS(symlink_body), 200, file_symlink},
    {"file.batch", "POST", FILES "/batch", "files:write", 0, "Many small operations in one go", NO_FIELDS,
     FIELDS(batch_body), 200, file_batch},
    {"file.watch", "GET", FILES "/watch", "files:read", OP_STREAM, "Follow changes as server-sent events",
     FIELDS(watch_query), NO_FIELDS, 200, file_watch},
    {"file.archive_get", "GET", FILES "/archive", "files:read", OP_STREAM, "A tree as a tar", FIELDS(path_query),
     NO_FIELDS, 200, file_archive_get},
    {"file.archive_put", "PUT", FILES "/archive", "files:write", OP_RAW_BODY, "Unpack a tar below a path",
     FIELDS(path_query), NO_FIELDS, 200, file_archive_put},
};

const size_t rest_file_nops = array_len(rest_file_ops);
