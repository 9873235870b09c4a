/*
 * sdk.c - drives bench/sdk.mjs by lines over two pipes
 */
#include "sdk.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/fd.h"

extern char **environ;

static int answer(struct sdk *s, char *line, int size)
{
    if (fgets(line, size, s->from) == NULL) {
        fprintf(stderr, "sdk: the client's program has ended\n");
        return -1;
    }
    line[strcspn(line, "\n")] = '\0';
    return 0;
}

int sdk_start(struct sdk *s, const char *program)
{
    char *const argv[] = {"node", (char *)program, NULL};
    int in[2], out[2];
    posix_spawn_file_actions_t actions;
    char line[256];

    *s = (struct sdk){0};
    if (pipe2(in, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(out, O_CLOEXEC) < 0) {
        (void)close(in[0]);
        (void)close(in[1]);
        return -1;
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    (void)posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    int r = posix_spawnp(&s->pid, "node", &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(in[0]);
    (void)close(out[1]);
    s->to = fdopen(in[1], "w");
    s->from = fdopen(out[0], "r");
    if (r != 0) {
        fprintf(stderr, "sdk: cannot start node: %s\n", strerror(r));
        s->pid = 0;
    }
    if (r == 0 && answer(s, line, sizeof line) == 0 && strcmp(line, "ready") == 0)
        return 0;
    sdk_stop(s);
    return -1;
}

double sdk_time(struct sdk *s, const char *command)
{
    char line[1024];

    if (s->pid == 0 || fprintf(s->to, "%s\n", command) < 0 || fflush(s->to) != 0 ||
        answer(s, line, sizeof line) < 0)
        return -1;
    if (strncmp(line, "ok ", 3) != 0) {
        fprintf(stderr, "sdk: %s: %s\n", command, line);
        return -1;
    }
    return strtod(line + 3, NULL);
}

void sdk_stop(struct sdk *s)
{
    if (s->to != NULL)
        (void)fclose(s->to);
    if (s->from != NULL)
        (void)fclose(s->from);
    if (s->pid != 0)
        (void)waitpid(s->pid, NULL, 0);     /* it ends when its stdin does */
    *s = (struct sdk){0};
}
