/*
 * fs_errors.c - kinds of file errors
 */
#include "api/rest/fs_errors.h"

#include <string.h>

#include "base/mem.h"

static const struct {
    const char *kind;
    enum err_code code;
} kinds[] = {
    {"NotFound", ERR_FS_NOT_FOUND},
    {"IsDirectory", ERR_FS_IS_DIR},
    {"NotDirectory", ERR_FS_NOT_DIR},
    {"IsFile", ERR_FS_NOT_DIR},
    {"AlreadyExists", ERR_FS_NOT_DIR},      /* in a write: a part of the path is a file */
    {"PathAlreadyExists", ERR_FS_EXISTS},
    {"DirectoryNotEmpty", ERR_FS_NOT_EMPTY},
    {"PermissionDenied", ERR_FS_DENIED},
    {"FileTooLarge", ERR_TOO_LARGE},
    {"NotSupported", ERR_UNSUPPORTED},
    {"SpecialFile", ERR_FS_SPECIAL},
    {"Loop", ERR_FS_LOOP},
    {"NameTooLong", ERR_FS_NAME},
    {"ReadOnly", ERR_FS_READ_ONLY},
    {"NoSpace", ERR_FS_NO_SPACE},
    {"InvalidRange", ERR_RANGE},
    {"Invalid", ERR_INVALID},
    {"Incomplete", ERR_MALFORMED},
    {"Refused", ERR_CONFLICT},
    {"Io", ERR_FS_IO},
};

enum err_code fs_error_code(const char *kind)
{
    for (size_t i = 0; i < array_len(kinds); i++)
        if (strcmp(kind, kinds[i].kind) == 0)
            return kinds[i].code;
    return ERR_FS_IO;
}

int fs_error_from_json(const json_t *o, const char *path, struct err *e)
{
    const char *kind = json_string_value(json_object_get(o, "error_kind"));
    const char *message = json_string_value(json_object_get(o, "message"));
    const char *detail = json_string_value(json_object_get(o, "detail"));
    bool has_detail = detail != NULL && *detail != '\0';

    return err_param(e, fs_error_code(kind != NULL ? kind : ""), path != NULL ? "path" : "", "%s%s%s%s%s%s",
                     message != NULL ? message : "the file operation failed", path != NULL ? ": " : "",
                     path != NULL ? path : "", has_detail ? " (" : "", has_detail ? detail : "", has_detail ? ")" : "");
}

int fs_error_from_text(const void *p, size_t n, int code, const char *path, struct err *e)
{
    json_t *o = json_loadb(p, n, 0, NULL);

    if (json_is_object(o))
        (void)fs_error_from_json(o, path, e);
    else
        (void)err_set(e, ERR_FS_IO, "the file helper ended with %d: %.*s", code, n < 200 ? (int)n : 200,
                      (const char *)p);
    json_decref(o);
    return -1;
}
