/*
 * image_path_fuzz.c - names of archive entries: what comes out leads nowhere but down
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(char *path)
{
    char again[LIMIT_PATH];
    const char *parent;

    if (path_normalize(path, again, sizeof again) != 0 || strcmp(path, again) != 0)
        abort();
    if (path[0] == '/' || strstr(path, "//") != NULL)
        abort();
    while (*path != '\0') {
        const char *name = path_split(path, &parent);
        if (*name == '\0' || strlen(name) > 255 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            strchr(name, '/') != NULL)
            abort();
        if (*parent == '\0')
            break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char out[LIMIT_PATH];
    char small[8];
    char *name = malloc(size + 1);

    if (name == NULL)
        return 0;
    memcpy(name, data, size);
    name[size] = '\0';
    if (path_normalize(name, out, sizeof out) == 0)
        check(out);
    (void)path_normalize(name, small, sizeof small);
    free(name);
    return 0;
}
