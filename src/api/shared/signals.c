/*
 * signals.c - names of signals
 *
 * The numbers are the kernel's (x86-64 and arm64 agree): they are used inside a sandbox, whose C library may differ.
 */
#include "api/shared/signals.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static const struct {
    const char *name;
    int number;
} names[] = {
    {"HUP", 1},   {"INT", 2},    {"QUIT", 3},  {"ILL", 4},   {"TRAP", 5},    {"ABRT", 6},    {"IOT", 6},
    {"BUS", 7},   {"FPE", 8},    {"KILL", 9},  {"USR1", 10}, {"SEGV", 11},   {"USR2", 12},   {"PIPE", 13},
    {"ALRM", 14}, {"TERM", 15},  {"STKFLT", 16}, {"CHLD", 17}, {"CONT", 18}, {"STOP", 19},   {"TSTP", 20},
    {"TTIN", 21}, {"TTOU", 22},  {"URG", 23},  {"XCPU", 24}, {"XFSZ", 25},   {"VTALRM", 26}, {"PROF", 27},
    {"WINCH", 28}, {"IO", 29},   {"POLL", 29}, {"PWR", 30},  {"SYS", 31},    {"RTMIN", 34},  {"RTMAX", 64},
};

/* A decimal number of at most two digits; -1 otherwise. */
static int small_number(const char *text)
{
    size_t n = strlen(text);

    if (n == 0 || n > 2 || strspn(text, "0123456789") != n)
        return -1;
    return (int)strtol(text, NULL, 10);
}

int signal_parse(const char *text)
{
    int number = small_number(text);

    if (number >= 0)
        return number >= 1 && number <= SIGNAL_MAX ? number : 0;
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; i < array_len(names); i++)
        if (strcasecmp(text, names[i].name) == 0)
            return names[i].number;
    if (strncasecmp(text, "RTMIN+", 6) == 0) {
        number = small_number(text + 6);
        return number >= 0 && 34 + number <= SIGNAL_MAX ? 34 + number : 0;
    }
    if (strncasecmp(text, "RTMAX-", 6) == 0) {
        number = small_number(text + 6);
        return number >= 0 && SIGNAL_MAX - number >= 34 ? SIGNAL_MAX - number : 0;
    }
    return 0;
}
