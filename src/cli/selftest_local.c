/*
 * selftest_local.c - the program quicksand-escape on this machine: its list, its controls, the host's victim
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/selftest.h"
#include "sys/fd.h"

#define NAME "quicksand-escape"
#define PATIENCE_MS 300000
#define OUTPUT_MAX (64 * 1024 * 1024)

extern char **environ;

char *local_program(const char *given, struct err *e)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (given != NULL)
        return mem_strdup(given);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    /* Beside us, as `make run` lays it; or as an installation has it; or in a build tree. */
    static const char *const places[] = {NAME, "../lib/quicksand/" NAME, "../../tests/escape/" NAME};
    for (size_t i = 0; i < array_len(places); i++) {
        char *path = mem_printf("%s/%s", self, places[i]);
        if (access(path, X_OK) == 0)
            return path;
        free(path);
    }
    (void)err_set(e, ERR_NOT_FOUND, "the program " NAME " is not beside this one; name it with --program");
    return NULL;
}

static pid_t start(const struct selftest *s, const char *const *words, int in, int out, struct err *e)
{
    char *argv[12] = {(char *)(uintptr_t)NAME};
    posix_spawn_file_actions_t actions;
    pid_t pid;

    for (size_t i = 0; i < 10 && words[i] != NULL; i++)
        argv[i + 1] = (char *)(uintptr_t)words[i];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int r = posix_spawn(&pid, s->program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (r != 0) {
        (void)err_sys(e, r, "start %s", s->program);
        return -1;
    }
    return pid;
}

/* Until the end, or until nobody could still be waiting for it. */
static int read_all(int fd, struct buf *out, struct err *e)
{
    int64_t give_up = clock_boot_ms() + PATIENCE_MS;
    char block[65536];

    for (;;) {
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        int64_t left = give_up - clock_boot_ms();
        if (left <= 0 || poll(&pf, 1, (int)left) == 0)
            return err_set(e, ERR_UNAVAILABLE, NAME " has not ended after %d s", PATIENCE_MS / 1000);
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno != EINTR)
            return err_sys(e, errno, "read from " NAME);
        if (n == 0)
            return 0;
        if (n > 0 && buf_add(out, block, (size_t)n) < 0)
            return err_set(e, ERR_INTERNAL, NAME " wrote more than %d MiB", OUTPUT_MAX >> 20);
    }
}

int local_run(const struct selftest *s, const char *const *words, struct buf *out, struct err *e)
{
    auto_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC), end = -1;
    int fds[2], status = 0;

    buf_init(out, OUTPUT_MAX);
    if (null < 0 || pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    end = fds[0];
    pid_t pid = start(s, words, null, fds[1], e);
    fd_close(&fds[1]);
    if (pid < 0)
        return -1;
    int r = read_all(end, out, e);
    if (r < 0)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (r == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        return err_set(e, ERR_INTERNAL, NAME " %s failed (wait status %d)", words[0], status);
    return r;
}

int local_victim_start(struct selftest *s, struct err *e)
{
    const char *const words[] = {"victim", s->token_host, NULL};
    int in[2], out[2];
    char line[64];

    if (pipe2(in, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    s->victim_in = in[1];
    if (pipe2(out, O_CLOEXEC) < 0) {
        fd_close(&in[0]);
        return err_sys(e, errno, "make a pipe");
    }
    s->victim_out = out[0];
    pid_t pid = start(s, words, in[0], out[1], e);
    fd_close(&in[0]);
    fd_close(&out[1]);
    if (pid < 0)
        return -1;
    s->victim = pid;
    if (read(s->victim_out, line, sizeof line) <= 5)
        return err_set(e, ERR_INTERNAL, "the victim on the host did not start");
    return 0;
}

char *local_victim_ask(struct selftest *s)
{
    char text[600];
    struct pollfd pf = {.fd = s->victim_out, .events = POLLIN};

    if (write(s->victim_in, "?\n", 2) != 2 || poll(&pf, 1, 10000) <= 0)
        return mem_strdup("gone or stopped");
    ssize_t n = read(s->victim_out, text, sizeof text - 1);
    if (n <= 0)
        return mem_strdup("gone");
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return mem_strdup(text);
}

void local_end(struct selftest *s)
{
    if (s->helper > 0) {
        (void)kill(s->helper, SIGKILL);
        (void)waitpid(s->helper, NULL, 0);
        s->helper = 0;
    }
    /* The end of its stdin is the victim's end; it takes its files away. */
    fd_close(&s->victim_in);
    if (s->victim > 0) {
        for (int i = 0; i < 500 && waitpid(s->victim, NULL, WNOHANG) == 0; i++)
            (void)poll(NULL, 0, 10);
        (void)kill(s->victim, SIGKILL);
        (void)waitpid(s->victim, NULL, WNOHANG);
        s->victim = 0;
    }
    fd_close(&s->victim_out);
}
