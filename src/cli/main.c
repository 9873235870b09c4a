/*
 * main.c - the `quicksand` command line: finds the command
 */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cmd.h"

static const struct {
    const char *name;
    int (*fn)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"run", cmd_run, "create a sandbox, run a command in it, remove it"},
    {"create", cmd_create, "create a sandbox and print its id"},
    {"exec", cmd_exec, "run a command in a sandbox"},
    {"sh", cmd_sh, "open a shell in a sandbox"},
    {"ps", cmd_ps, "list sandboxes"},
    {"cp", cmd_cp, "copy files and directories in and out"},
    {"port", cmd_port, "open ports of a sandbox to the outside and list them"},
    {"logs", cmd_logs, "print what the entry point has written"},
    {"kill", cmd_kill, "end sandboxes, keeping their record"},
    {"rm", cmd_rm, "end sandboxes and remove them"},
    {"inspect", cmd_inspect, "print a sandbox or a command as JSON"},
    {"build", cmd_build, "build an image out of a Dockerfile"},
    {"image", cmd_image, "pull, import, list, name and remove images"},
    {"policy", cmd_policy, "what may leave a sandbox, and what was refused"},
    {"secret", cmd_secret, "values that rules of a policy put into requests, and that stay outside"},
    {"token", cmd_token, "make, list and remove tokens"},
    {"doctor", cmd_doctor, "what this host can and cannot do, and the commands that mend it"},
    {"selftest", cmd_selftest, "try to get out of a sandbox on this machine"},
};

static void help(void)
{
    printf("usage: quicksand COMMAND ...\n\n");
    for (size_t i = 0; i < array_len(commands); i++)
        printf("  %-9s %s\n", commands[i].name, commands[i].about);
    printf("  %-9s %s\n  %-9s %s\n\n", "version", "print the version", "help", "this text");
    printf("'quicksand COMMAND --help' tells more. A sandbox is named by its id or its name.\n"
           "The server is QUICKSAND_URL (default http://127.0.0.1:7070) with QUICKSAND_TOKEN, or what\n"
           "~/.config/quicksand/config says: url = ..., token = ..., ca = ...\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";

    (void)setlocale(LC_CTYPE, "");
    for (size_t i = 0; i < array_len(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].fn(argc - 1, argv + 1);
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        help();
        return 0;
    }
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        printf("quicksand %s\n", QS_VERSION);
        return 0;
    }
    if (*name == '\0')
        fprintf(stderr, "quicksand: no command given ('quicksand help' lists them)\n");
    else
        fprintf(stderr, "quicksand: unknown command '%s' ('quicksand help' lists them)\n", name);
    return EXIT_USAGE;
}
