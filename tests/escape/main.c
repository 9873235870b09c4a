/*
 * main.c - quicksand-escape: the list of attempts, and one way to run them inside and one outside
 *
 *   quicksand-escape list                          name, inside, reach, tries; a tab between
 *   quicksand-escape inside TOKEN HOST_PID [BEGIN] runs all whose names begin so; "name<tab>outcome" a line
 *   quicksand-escape control                       the same as real root, in throw-away namespaces
 *   quicksand-escape one NAME ...                  one attempt, as `inside`
 *   quicksand-escape dump                          what can be read of others
 *   quicksand-escape control-dump TOKEN            the same where TOKEN's canaries lie open
 *   quicksand-escape victim TOKEN                  plants canaries; at the end of stdin "untouched" or what was done
 *   quicksand-escape swap DIRECTORY TARGET         swaps a directory and a link to TARGET until it is killed
 *   quicksand-escape naive ROOT OPERATION PATH     a file operation that trusts what it finds below ROOT
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"
#include "races.h"

#define PATIENCE_MS 20000

static const struct attempt *const tables[] = {
    mounts_table, devices_table, procfs_table, sysctl_table, cgroups_table, ptrace_table, process_table,
    kernel_table, namespaces_table, exe_table, sockets_table, tty_table, fds_table,
};

static void text_of(int status, char *out, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(out, size, "SIG%d", WTERMSIG(status));
    else
        snprintf(out, size, "exit-%d", WEXITSTATUS(status));
}

void attempt_run(const struct attempt *a, const struct ctx *c, char *out, size_t size)
{
    int pipe_fds[2], result, status = 0;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
        snprintf(out, size, "no-pipe");
        return;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(pipe_fds[0]);
        (void)setsid();
        result = a->run(c);
        (void)!write(pipe_fds[1], &result, sizeof result);
        _exit(0);
    }
    (void)close(pipe_fds[1]);
    if (pid < 0) {
        snprintf(out, size, "no-fork");
        (void)close(pipe_fds[0]);
        return;
    }
    struct pollfd pf = {.fd = pipe_fds[0], .events = POLLIN};
    int ready = poll(&pf, 1, PATIENCE_MS);
    bool told = ready > 0 && read(pipe_fds[0], &result, sizeof result) == sizeof result;
    (void)kill(pid, SIGKILL);
    (void)close(pipe_fds[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (told)
        snprintf(out, size, "%s", outcome_name(result));
    else if (ready == 0)
        snprintf(out, size, "hung");
    else
        text_of(status, out, size);
}

static const struct attempt *attempt_find(const char *name)
{
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const struct attempt *a = tables[t]; a->name != NULL; a++)
            if (strcmp(a->name, name) == 0)
                return a;
    return NULL;
}

static int each(void (*fn)(const struct attempt *a, const struct ctx *c), const struct ctx *c)
{
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const struct attempt *a = tables[t]; a->name != NULL; a++)
            fn(a, c);
    return 0;
}

static void list_one(const struct attempt *a, const struct ctx *c)
{
    (void)c;
    printf("%s\t%s\t%s\t%s\n", a->name, a->inside, a->reach != NULL ? a->reach : "-", a->tries);
}

static const char *wanted = "";

static void inside_one(const struct attempt *a, const struct ctx *c)
{
    char out[64];

    if (strncmp(a->name, wanted, strlen(wanted)) != 0)
        return;
    attempt_run(a, c, out, sizeof out);
    printf("%s\t%s\n", a->name, out);
    fflush(stdout);
}

static void control_one(const struct attempt *a, const struct ctx *c)
{
    char out[96];

    (void)c;
    control_run(a, out, sizeof out);
    printf("%s\t%s\n", a->name, out);
    fflush(stdout);
}

static int inside_ctx(struct ctx *c, char **argv)
{
    *c = (struct ctx){.victim = (pid_t)strtol(argv[1], NULL, 10), .init = 1, .ask = -1};
    snprintf(c->token, sizeof c->token, "%s", argv[0]);
    snprintf(c->scratch, sizeof c->scratch, "/tmp/%s", c->token);
    if (mkdir("/tmp", 01777) < 0 && errno != EEXIST)
        return -1;
    return mkdir(c->scratch, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: quicksand-escape list | control | inside TOKEN PID | one NAME TOKEN PID | control-one NAME |\n"
                    "       dump | control-dump TOKEN | victim TOKEN | swap DIRECTORY TARGET | naive ROOT OPERATION PATH\n");
    return 2;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const struct attempt *a;
    struct ctx c;

    if (strcmp(mode, "list") == 0)
        return each(list_one, NULL);
    if (strcmp(mode, "control") == 0)
        return each(control_one, NULL);
    if (strcmp(mode, "inside") == 0 && (argc == 4 || argc == 5)) {
        wanted = argc == 5 ? argv[4] : "";
        return inside_ctx(&c, argv + 2) < 0 ? 1 : each(inside_one, &c);
    }
    if (strcmp(mode, "one") == 0 && argc == 5 && (a = attempt_find(argv[2])) != NULL) {
        if (inside_ctx(&c, argv + 3) < 0)
            return 1;
        inside_one(a, &c);
        return 0;
    }
    if (strcmp(mode, "control-one") == 0 && argc == 3 && (a = attempt_find(argv[2])) != NULL) {
        control_one(a, NULL);
        return 0;
    }
    if (strcmp(mode, "dump") == 0)
        return dump_main(argc > 2);
    if (strcmp(mode, "control-dump") == 0 && argc == 3)
        return control_dump(argv[2]);
    if (strcmp(mode, "victim") == 0 && argc >= 3)
        return victim_main(argv[2]);
    if (strcmp(mode, "swap") == 0 && argc == 4)
        return swap_main(argv[2], argv[3]);
    if (strcmp(mode, "naive") == 0 && argc == 5)
        return naive_main(argv[2], argv[3], argv[4]);
    if (strcmp(mode, "descriptors") == 0)
        return descriptors_main();
    if (strcmp(mode, "noop") == 0)
        return 0;
    if (strcmp(mode, "pause") == 0)
        return pause();
    return usage();
}
