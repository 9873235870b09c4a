/*
 * selftest_secrets.c - canaries of the host, of the neighbour and of the control, looked for in what a sandbox can read
 *
 * The program's `dump` writes down everything that it can read of others; the search is done here, so that no secret goes
 * into a sandbox. In the control all canaries of that control must be found, by the same search.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/selftest.h"
#include "sys/fd.h"

#define PLACES 30
#define SHORTEST 8              /* of a fact of the host; less is met by chance */

/* Numbers and meaning as in tests/escape/plant.h. */
static const struct {
    const char *name, *tries;
} places[PLACES] = {
    {"environ", "the environment of another process"},
    {"cmdline", "the command line of another process"},
    {"comm", "the name of another process"},
    {"memory", "the memory of another process"},
    {"open-file", "a deleted file that another process holds open"},
    {"cwd", "the working directory of another process"},
    {"mapped-name", "the name of a file that another process has mapped"},
    {"tmp-file", "a file in /tmp"},
    {"shm-file", "a file in /dev/shm"},
    {"mqueue", "a POSIX message queue"},
    {"sysv-shm", "a System V shared memory segment"},
    {"sysv-msg", "a System V message"},
    {"abstract-name", "the name of an abstract socket"},
    {"abstract-banner", "what a service on an abstract socket says"},
    {"tcp-banner", "what a service on the loopback device says"},
    {"udp-answer", "what a service on the loopback device answers to a datagram"},
    {"socket-banner", "what a service on a socket file says"},
    {"key", "the name of a key in a keyring"},
    {"host-name", "the host name"},
    {"mount-source", "the source of a mount"},
    {"group-name", "the name of a control group that one is in"},
    {"interface", "the name of a network interface"},
    {"terminal", "what was typed into a terminal"},
    {"process-root", "a file that only another process's root leads to"},
    {"inherited-env", "a variable that came along from whoever started us"},
    {"inherited-fd", "a descriptor that came along from whoever started us"},
    {"fetched-fd", "a descriptor of another process, fetched"},
    {"fdinfo", "what the kernel tells of another process's descriptors"},
    {"fd-name", "the name of a descriptor of another process"},
    {"group-tree", "a name in the control group tree"},
};

/* FNV-1a, as token_number() of tests/escape has it. */
static uint32_t token_number(const char *token)
{
    uint32_t h = 2166136261u;

    for (; *token != '\0'; token++)
        h = (h ^ (unsigned char)*token) * 16777619u;
    return h;
}

static void canary(char out[32], size_t place, const char *token)
{
    if (strcmp(places[place].name, "fdinfo") == 0)
        (void)snprintf(out, 32, "eventfd-count:%17x", 0x51000000u | (token_number(token) & 0xffffffu));
    else
        (void)snprintf(out, 32, "qsc-%02u-%.8s", (unsigned)(place + 1) % 100, token + 4);
}

static bool has(struct buf *dump, const char *text)
{
    return memmem(buf_str(dump), dump->len, text, strlen(text)) != NULL;
}

/* A fact of the host that must not be met inside, as one line of text; "" = there is none to be told apart. */
struct fact {
    const char *name, *tries, *file;
};
static const struct fact facts[] = {
    {"host-boot-id", "the machine's boot id", "/proc/sys/kernel/random/boot_id"},
    {"host-machine-id", "the machine's id", "/etc/machine-id"},
    {"host-command-line", "the kernel's command line", "/proc/cmdline"},
    {"host-name", "the machine's name", "/proc/sys/kernel/hostname"},
    {"host-domain", "the machine's domain", "/proc/sys/kernel/domainname"},
    {"host-password", "root's password hash", "/etc/shadow"},
    {"host-token", "the token that this test uses", NULL},
};

static void first_line(const char *path, char *out, size_t size)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;

    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static void fact_text(const struct selftest *s, const struct fact *f, char *out, size_t size)
{
    if (f->file == NULL) {
        const char *dot = strchr(s->cl.token, '.');
        (void)snprintf(out, size, "%s", dot != NULL ? dot + 1 : s->cl.token);
        return;
    }
    first_line(f->file, out, size);
    if (strcmp(f->name, "host-password") == 0) {
        char *hash = strchr(out, ':'), *end = hash != NULL ? strchr(hash + 1, ':') : NULL;
        if (end != NULL)
            *end = '\0';
        memmove(out, hash != NULL ? hash + 1 : "", strlen(hash != NULL ? hash + 1 : "") + 1);
    }
}

void secrets_list(struct selftest *s)
{
    for (size_t i = 0; i < PLACES; i++) {
        auto_free char *name = mem_printf("canary-%s", places[i].name);
        auto_free char *tries = mem_printf("find %s", places[i].tries);
        (void)trial_add(&s->trials, name, tries, "nothing", "-");
    }
    for (size_t i = 0; i < array_len(facts); i++) {
        auto_free char *tries = mem_printf("find %s", facts[i].tries);
        (void)trial_add(&s->trials, facts[i].name, tries, "nothing", "-");
    }
    for (size_t i = 0; i < s->secrets->n; i++) {
        auto_free char *name = mem_printf("secret-%zu", i + 1);
        auto_free char *tries = mem_printf("find the first line of %s", s->secrets->items[i]);
        (void)trial_add(&s->trials, name, tries, "nothing", "-");
    }
}

static void judge(struct trial *t, struct buf *dump, const char *text, const char *whose)
{
    if (!has(dump, text))
        return;
    trial_set(&t->inside, "ok");
    auto_free char *note = mem_printf("that of %s was found", whose);
    trial_set(&t->note, note);
}

static void judge_fact(struct trial *t, struct buf *dump, const char *text)
{
    if (strlen(text) < SHORTEST) {
        trial_set(&t->control, "skip: this host has none that could be told apart");
        return;
    }
    trial_set(&t->control, "ok");           /* it was read here */
    judge(t, dump, text, "this host");
}

static int controls(struct selftest *s, struct err *e)
{
    const char *const words[] = {"control-dump", s->token_control, NULL};
    auto_buf dump = {0};
    char text[32];

    if (local_run(s, words, &dump, e) < 0)
        return -1;
    for (size_t i = 0; i < PLACES; i++) {
        auto_free char *name = mem_printf("canary-%s", places[i].name);
        canary(text, i, s->token_control);
        trial_set(&trial_find(&s->trials, name)->control, has(&dump, text) ? "ok" : "nothing");
    }
    return 0;
}

int secrets_try(struct selftest *s, struct err *e)
{
    const char *const words[] = {"dump", NULL};
    auto_buf dump = {0};
    char text[4096];

    if (s->controls && controls(s, e) < 0)
        return -1;
    if (sandbox_run(s, words, &dump, e) < 0)
        return -1;
    if (!has(&dump, "== end of the dump"))
        return err_set(e, ERR_INTERNAL, "the sandbox's dump is not whole");
    for (size_t i = 0; i < PLACES; i++) {
        auto_free char *name = mem_printf("canary-%s", places[i].name);
        struct trial *t = trial_find(&s->trials, name);
        trial_set(&t->inside, "nothing");
        canary(text, i, s->token_host);
        judge(t, &dump, text, "this host");
        canary(text, i, s->token_neighbour);
        judge(t, &dump, text, "the neighbour");
    }
    for (size_t i = 0; i < array_len(facts); i++) {
        struct trial *t = trial_find(&s->trials, facts[i].name);
        trial_set(&t->inside, "nothing");
        fact_text(s, &facts[i], text, sizeof text);
        judge_fact(t, &dump, text);
    }
    for (size_t i = 0; i < s->secrets->n; i++) {
        auto_free char *name = mem_printf("secret-%zu", i + 1);
        struct trial *t = trial_find(&s->trials, name);
        trial_set(&t->inside, "nothing");
        first_line(s->secrets->items[i], text, sizeof text);
        judge_fact(t, &dump, text);
    }
    return 0;
}
