/*
 * replay.c - runs a fuzz target over the files of its corpus, so that inputs found once stay tested
 *
 * Usage: NAME_replay DIRECTORY. Fails if the directory is missing or empty: a corpus that vanished
 * must not look like a pass.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *dir, const char *name)
{
    char path[4096];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return -1;
    static uint8_t data[1 << 20];
    size_t n = fread(data, 1, sizeof data, f);
    (void)fclose(f);
    /* A heap copy of the exact size, so that the address sanitizer sees reads past the end. */
    uint8_t *exact = malloc(n > 0 ? n : 1);
    if (exact == NULL)
        return -1;
    for (size_t i = 0; i < n; i++)
        exact[i] = data[i];
    (void)LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    int files = 0;

    DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
    if (d == NULL) {
        fprintf(stderr, "usage: replay DIRECTORY (with at least one file)\n");
        return 2;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        if (replay_file(argv[1], e->d_name) < 0) {
            fprintf(stderr, "cannot read %s\n", e->d_name);
            return 1;
        }
        files++;
    }
    (void)closedir(d);
    printf("%d inputs\n", files);
    return files > 0 ? 0 : 1;
}
