/*
 * races.c - both sides of a race on paths
 */
#include "races.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "escape.h"

static void fill(const char *dir)
{
    char path[300];

    (void)mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/deep", dir);
    (void)mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/secret", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) {
        (void)!write(fd, "inside", 6);
        (void)close(fd);
    }
}

int swap_main(const char *directory, const char *target)
{
    (void)mkdir(directory, 0777);
    if (chdir(directory) < 0)
        return 1;
    for (;;) {
        fill("real");
        (void)unlink("link");
        (void)symlink(target, "link");
        (void)rename("real", "x");                          /* where nothing was there yet */
        /* Exchanged in one step, so that "x" is never missing. */
        for (int i = 0; i < 64; i++)
            (void)syscall(SYS_renameat2, AT_FDCWD, "x", AT_FDCWD, "link", 2);
        /* What was deleted comes again; through the link there is nothing to fill. */
        fill("x");
        fill("link");
    }
}

int naive_main(const char *root, const char *operation, const char *path)
{
    char full[600], other[640], text[64];

    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(other, sizeof other, "%s.moved", full);
    if (strcmp(operation, "put") == 0 || strcmp(operation, "unpack") == 0) {
        int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        return fd < 0 || write(fd, "bad", 3) != 3;
    }
    if (strcmp(operation, "get") == 0 || strcmp(operation, "hash") == 0 || strcmp(operation, "archive") == 0) {
        ssize_t n = read_text(full, text, sizeof text);
        return n <= 0 || printf("%s\n", text) <= 0;
    }
    if (strcmp(operation, "list") == 0 || strcmp(operation, "watch") == 0) {
        DIR *dir = opendir(full);
        return dir == NULL;
    }
    if (strcmp(operation, "stat") == 0)
        return access(full, F_OK) < 0;
    if (strcmp(operation, "delete") == 0)
        return unlink(full) < 0;
    if (strcmp(operation, "mkdir") == 0)
        return mkdir(full, 0755) < 0;
    if (strcmp(operation, "move") == 0)
        return rename(full, other) < 0;
    if (strcmp(operation, "chmod") == 0)
        return chmod(full, 0777) < 0;
    if (strcmp(operation, "chown") == 0)
        return chown(full, 12345, 12345) < 0;
    if (strcmp(operation, "symlink") == 0)
        return symlink("bad", full) < 0;
    if (strcmp(operation, "workdir") == 0)
        return chdir(full) < 0;
    return 2;
}
