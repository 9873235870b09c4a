/*
 * cgroup_mounts.c - which cgroup hierarchies this host has, and where
 */
#include "sys/cgroup_mounts.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is `word` an element of the comma-separated `list`? */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        if (*at == ',')
            at++;
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

/* The first mount found wins. Paths with escaped characters are passed over: nobody mounts cgroups there. */
static void note(char *field, size_t size, const char *path)
{
    if (*field == '\0' && strlen(path) < size && strchr(path, '\\') == NULL)
        memcpy(field, path, strlen(path) + 1);
}

/* "id parent dev root PATH options [tags] - TYPE source SUPER_OPTIONS" */
static void take_line(char *line, struct cgroup_mounts *ret)
{
    char *save = NULL, *path = NULL, *type = NULL, *super = NULL;
    char *field = strtok_r(line, " \n", &save);
    int n = 0, after = -1;

    for (; field != NULL; field = strtok_r(NULL, " \n", &save), n++) {
        if (n == 4)
            path = field;
        else if (n > 4 && after < 0 && strcmp(field, "-") == 0)
            after = n;
        else if (after >= 0 && n == after + 1)
            type = field;
        else if (after >= 0 && n == after + 3)
            super = field;
    }
    if (path == NULL || type == NULL || super == NULL)
        return;
    if (strcmp(type, "cgroup2") == 0) {
        note(ret->v2, sizeof ret->v2, path);
    } else if (strcmp(type, "cgroup") == 0) {
        if (has_word(super, "cpu"))
            note(ret->cpu, sizeof ret->cpu, path);
        if (has_word(super, "memory"))
            note(ret->memory, sizeof ret->memory, path);
        if (has_word(super, "pids"))
            note(ret->pids, sizeof ret->pids, path);
        if (has_word(super, "blkio"))
            note(ret->io, sizeof ret->io, path);
    }
}

int cgroup_mounts_find(struct cgroup_mounts *ret)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t size = 0;

    if (f == NULL)
        return -errno;
    *ret = (struct cgroup_mounts){0};
    while (getline(&line, &size, f) >= 0)
        take_line(line, ret);
    free(line);
    (void)fclose(f);
    return 0;
}
