/*
 * error.c - errno becomes the kinds that clients know
 */
#include "init/fs/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "init/fs/out.h"

static const struct {
    int error;
    const char *kind, *message;
} table[] = {
    {ENOENT, "NotFound", "no such file or directory"},
    {EACCES, "PermissionDenied", "permission denied"},
    {EPERM, "PermissionDenied", "operation not permitted"},
    {EISDIR, "IsDirectory", "is a directory"},
    {ENOTDIR, "NotDirectory", "not a directory"},
    {EEXIST, "PathAlreadyExists", "already exists"},
    {ENOTEMPTY, "DirectoryNotEmpty", "directory is not empty"},
    {ENOSPC, "NoSpace", "no space left"},
    {EDQUOT, "NoSpace", "disk quota exceeded"},
    {EROFS, "ReadOnly", "read-only file system"},
    {ELOOP, "Loop", "too many levels of symbolic links"},
    {ENAMETOOLONG, "NameTooLong", "name is too long"},
    {EFBIG, "FileTooLarge", "file is too large"},
    {ENXIO, "SpecialFile", "not a regular file"},
    {ENODEV, "SpecialFile", "not a regular file"},
    {EOPNOTSUPP, "NotSupported", "not supported here"},
    {ENOSYS, "NotSupported", "not supported here"},
    {EXDEV, "NotSupported", "on another file system"},
    {EBUSY, "Refused", "is in use by the system"},
    {EINVAL, "Invalid", "invalid argument"},
    {EBADMSG, "Invalid", "malformed input"},
};

int fs_fail_kind(struct fs_error *e, const char *kind, const char *message)
{
    e->kind = kind;
    snprintf(e->message, sizeof e->message, "%s", message);
    e->detail[0] = '\0';
    return -1;
}

int fs_fail(struct fs_error *e, int sys_errno)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].error == sys_errno)
            return fs_fail_kind(e, table[i].kind, table[i].message);
    return fs_fail_kind(e, "Io", strerror(sys_errno));
}

int fs_fail_at(struct fs_error *e, int sys_errno, const char *entry)
{
    (void)fs_fail(e, sys_errno);
    snprintf(e->detail, sizeof e->detail, "%s", entry);
    return -1;
}

int fs_fail_kind_at(struct fs_error *e, const char *kind, const char *message, const char *entry)
{
    (void)fs_fail_kind(e, kind, message);
    snprintf(e->detail, sizeof e->detail, "%s", entry);
    return -1;
}

void fs_error_print(struct out *o, const struct fs_error *e)
{
    out_text(o, "{\"version\":1,\"error_kind\":\"");
    out_text(o, e->kind);
    out_text(o, "\",\"message\":");
    (void)out_string(o, e->message, strlen(e->message));
    if (e->detail[0] != '\0') {
        out_text(o, ",\"detail\":");
        (void)out_string(o, e->detail, strlen(e->detail));
    }
    out_text(o, "}");
}
