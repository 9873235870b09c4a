/*
 * cmd_selftest.c - selftest: does what keeps a sandbox in hold on this machine?
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/selftest.h"

/* --- trials ------------------------------------------------------------------------------------------------------------- */

void trial_set(char **field, const char *text)
{
    char *copy = mem_strdup(text);

    free(*field);
    *field = copy;
}

struct trial *trial_add(struct trials *t, const char *name, const char *tries, const char *expected, const char *reach)
{
    t->items = mem_realloc(t->items, (t->n + 1) * sizeof *t->items);
    struct trial *one = &t->items[t->n++];
    *one = (struct trial){.name = mem_strdup(name), .tries = mem_strdup(tries), .expected = mem_strdup(expected),
                          .reach = mem_strdup(reach)};
    return one;
}

struct trial *trial_find(const struct trials *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->items[i].name, name) == 0)
            return &t->items[i];
    return NULL;
}

void trials_done(struct trials *t)
{
    for (size_t i = 0; i < t->n; i++) {
        struct trial *one = &t->items[i];
        char *const fields[] = {one->name, one->tries, one->expected, one->reach, one->control, one->inside, one->note};
        for (size_t k = 0; k < array_len(fields); k++)
            free(fields[k]);
    }
    free(t->items);
    *t = (struct trials){0};
}

/* Is `what` one of "A|B|C"? */
static bool one_of(const char *list, const char *what)
{
    size_t n = strlen(what);

    for (;;) {
        size_t len = strcspn(list, "|");
        if (len == n && memcmp(list, what, n) == 0)
            return true;
        if (list[len] == '\0')
            return false;
        list += len + 1;
    }
}

enum verdict { HELD, OUT, WRONG, UNSHOWN, SKIPPED, VERDICTS };
static const char *const verdict_names[VERDICTS] = {"held", "GOT OUT", "WRONG", "NOT SHOWN", "skipped"};

static bool control_lacks(const struct trial *t)
{
    if (t->control == NULL)
        return false;
    auto_free char *lacking = mem_printf("absent:%s", t->control);
    return strncmp(t->control, "skip:", 5) == 0 || one_of(t->reach, lacking);
}

static enum verdict judge(const struct trial *t)
{
    if (t->inside == NULL)
        return WRONG;
    if (!one_of(t->expected, t->inside))
        return strcmp(t->inside, "ok") == 0 ? OUT : WRONG;
    if (control_lacks(t))
        return SKIPPED;
    if (t->control != NULL && strcmp(t->control, "ok") != 0 && !one_of(t->reach, t->control))
        return UNSHOWN;
    /* What the control cannot tell from the sandbox shows nothing. */
    return t->control != NULL && strcmp(t->control, t->inside) == 0 ? UNSHOWN : HELD;
}

/* --- the program's own attempts -------------------------------------------------------------------------------------------- */

/* "name<tab>..." a line; fn gets the fields. */
static void each_line(struct buf *text, void (*fn)(struct selftest *s, char **fields, size_t n), struct selftest *s)
{
    char *line = (char *)(uintptr_t)buf_str(text), *next;

    for (; line != NULL && *line != '\0'; line = next) {
        char *fields[4] = {line};
        size_t n = 1;
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        for (char *tab = strchr(line, '\t'); tab != NULL && n < array_len(fields); tab = strchr(tab + 1, '\t')) {
            *tab = '\0';
            fields[n++] = tab + 1;
        }
        fn(s, fields, n);
    }
}

static void take_listed(struct selftest *s, char **f, size_t n)
{
    if (n == 4)
        (void)trial_add(&s->trials, f[0], f[3], f[1], f[2]);
}

static void take_control(struct selftest *s, char **f, size_t n)
{
    struct trial *t = n >= 2 ? trial_find(&s->trials, f[0]) : NULL;

    if (t != NULL)
        trial_set(&t->control, f[1]);
}

/* A second run does not make good what the first has shown. */
static void take_inside(struct selftest *s, char **f, size_t n)
{
    struct trial *t = n >= 2 ? trial_find(&s->trials, f[0]) : NULL;

    if (t != NULL && (t->inside == NULL || one_of(t->expected, t->inside)))
        trial_set(&t->inside, f[1]);
}

static int listed(struct selftest *s, struct err *e)
{
    const char *const words[] = {"list", NULL};
    auto_buf out = {0};

    if (local_run(s, words, &out, e) < 0)
        return -1;
    each_line(&out, take_listed, s);
    return s->trials.n > 0 ? 0 : err_set(e, ERR_INTERNAL, "%s lists no attempts", s->program);
}

static int controls(struct selftest *s, struct err *e)
{
    const char *const words[] = {"control", NULL};
    auto_buf out = {0};

    if (local_run(s, words, &out, e) < 0)
        return -1;
    each_line(&out, take_control, s);
    return 0;
}

/* All against the host, then what goes by addresses against the neighbour. */
static int attempts(struct selftest *s, struct err *e)
{
    char pid[16];
    auto_buf out = {0}, second = {0};

    (void)snprintf(pid, sizeof pid, "%d", (int)s->victim);
    const char *const host[] = {"inside", s->token_host, pid, NULL};
    const char *const neighbour[] = {"inside", s->token_neighbour, pid, "net-", NULL};
    if (sandbox_run(s, host, &out, e) < 0 || sandbox_run(s, neighbour, &second, e) < 0)
        return -1;
    each_line(&out, take_inside, s);
    each_line(&second, take_inside, s);
    return 0;
}

/* --- what this side sees --------------------------------------------------------------------------------------------------- */

static void witnesses_list(struct selftest *s)
{
    (void)trial_add(&s->trials, "witness-host", "do anything to a process of the host", "untouched", "-");
    (void)trial_add(&s->trials, "witness-neighbour", "do anything to a process of a neighbour", "untouched", "-");
    (void)trial_add(&s->trials, "witness-layer", "change a file of a neighbour's layers", "untouched", "-");
}

static void witness(struct selftest *s, const char *name, const char *saw)
{
    struct trial *t = trial_find(&s->trials, name);

    trial_set(&t->inside, strcmp(saw, "untouched") == 0 ? saw : "ok");
    if (strcmp(saw, "untouched") != 0)
        trial_set(&t->note, saw);
    /* What the victims of the controls have noticed shows that they would. */
    const struct trial *heard = trial_find(&s->trials, "signal-everybody");
    if (s->controls && heard != NULL && heard->control != NULL)
        trial_set(&t->control, heard->control);
}

static int layer_mode(struct selftest *s, char out[16], struct err *e)
{
    json_t *o = NULL;
    auto_free char *path =
        client_path("/v1/sandboxes/%s/files/stat?path=%s", s->neighbour, "/__modal/.bin/modal-sandbox-fs-tools");

    if (client_json(&s->cl, "GET", path, NULL, &o, e) < 0)
        return -1;
    const char *mode = json_string_value(json_object_get(o, "mode"));
    (void)snprintf(out, 16, "%s", mode != NULL ? mode : "");
    json_decref(o);
    return 0;
}

static int witnesses(struct selftest *s, const char *mode_before, struct err *e)
{
    char mode[16];
    auto_free char *host = local_victim_ask(s), *neighbour = neighbour_victim_ask(s, e);

    if (neighbour == NULL || layer_mode(s, mode, e) < 0)
        return -1;
    witness(s, "witness-host", host);
    witness(s, "witness-neighbour", neighbour);
    witness(s, "witness-layer", strcmp(mode, mode_before) == 0 ? "untouched" : "the neighbour's file has another mode");
    return 0;
}

static int isolation(struct selftest *s, struct err *e)
{
    char mode[16];

    if (listed(s, e) < 0)
        return -1;
    secrets_list(s);
    paths_list(s);
    witnesses_list(s);
    if (sandboxes_make(s, e) < 0 || local_victim_start(s, e) < 0 || neighbour_victim_start(s, e) < 0 ||
        layer_mode(s, mode, e) < 0 || helper_keep(s, e) < 0)
        return -1;
    if (s->controls && controls(s, e) < 0)
        return -1;
    if (attempts(s, e) < 0 || witnesses(s, mode, e) < 0)
        return -1;
    return secrets_try(s, e) < 0 ? -1 : paths_try(s, e);
}

/* --- what is said ------------------------------------------------------------------------------------------------------ */

static void print_lines(const struct selftest *s, const size_t *counts)
{
    for (size_t i = 0; i < s->trials.n; i++) {
        const struct trial *t = &s->trials.items[i];
        const char *control = t->control != NULL ? t->control : "skipped (not root)";
        printf("%-9s %-26s control: %-10s inside: %-16s %s%s%s%s\n", verdict_names[judge(t)], t->name, control,
               t->inside != NULL ? t->inside : "-", t->tries, t->note != NULL ? " [" : "", t->note != NULL ? t->note : "",
               t->note != NULL ? "]" : "");
    }
    printf("%zu attempts: %zu held, %zu got out, %zu ended otherwise than they must, %zu not shown by their control, "
           "%zu skipped%s\n",
           s->trials.n, counts[HELD], counts[OUT], counts[WRONG], counts[UNSHOWN], counts[SKIPPED],
           s->controls ? "" : "; controls skipped: they need root");
}

static void print_json(const struct selftest *s, const size_t *counts)
{
    static const char *const words[VERDICTS] = {"held", "out", "wrong", "unshown", "skipped"};
    json_t *items = json_array();

    for (size_t i = 0; i < s->trials.n; i++) {
        const struct trial *t = &s->trials.items[i];
        json_array_append_new(items, json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:s?}", "name", t->name, "tries", t->tries,
                                               "verdict", words[judge(t)], "expected", t->expected, "control", t->control,
                                               "inside", t->inside, "note", t->note));
    }
    json_t *all = json_pack("{s:o, s:I, s:I, s:I, s:I, s:I}", "attempts", items, "held", (json_int_t)counts[HELD], "out",
                            (json_int_t)counts[OUT], "wrong", (json_int_t)counts[WRONG], "unshown",
                            (json_int_t)counts[UNSHOWN], "skipped", (json_int_t)counts[SKIPPED]);
    auto_free char *text = json_dumps(all, JSON_INDENT(2));
    printf("%s\n", text);
    json_decref(all);
}

static int report(const struct selftest *s, bool as_json)
{
    size_t counts[VERDICTS] = {0};

    for (size_t i = 0; i < s->trials.n; i++)
        counts[judge(&s->trials.items[i])]++;
    if (as_json)
        print_json(s, counts);
    else
        print_lines(s, counts);
    return counts[OUT] + counts[WRONG] + counts[UNSHOWN] > 0 ? EXIT_FAILED : 0;
}

static void token_make(char out[TOKEN_MAX])
{
    uint32_t n;

    random_bytes(&n, sizeof n);
    (void)snprintf(out, TOKEN_MAX, "qse-%08x", n);
}

int cmd_selftest(int argc, char **argv)
{
    bool want_isolation = false;
    const char *program = NULL, *image = "base", *format = "table";
    auto_arg_list struct arg_list secrets = {0};
    const struct arg args[] = {
        {0, "isolation", ARG_FLAG, &want_isolation, NULL, "try to get out of a sandbox, in some hundred ways"},
        {'I', "image", ARG_TEXT, &image, "IMAGE", "image of the two sandboxes (default base)"},
        {0, "secret", ARG_LIST, &secrets, "FILE", "a file of this machine whose first line must not be met inside"},
        {0, "program", ARG_TEXT, &program, "FILE", "the program quicksand-escape (default: where it was installed)"},
        {'o', "output", ARG_TEXT, &format, "FORMAT", "table (default) or json"},
    };
    const struct cmd d = {
        .usage = "selftest --isolation [options]",
        .about = "Run hostile programs in a sandbox of this machine's daemon, and as root beside it to see that they work.",
        .args = args, .nargs = array_len(args), .mixed = true, .usage_code = EXIT_USAGE,
    };
    struct selftest s = {.victim_in = -1, .victim_out = -1};
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    bool is_json = strcmp(format, "json") == 0;
    if (!want_isolation || (!is_json && strcmp(format, "table") != 0)) {
        fprintf(stderr, "usage: quicksand %s\n", d.usage);
        return EXIT_USAGE;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    auto_free char *found = local_program(program, &e);
    if (found == NULL || client_init(&s.cl, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    s.program = found;
    s.image = image;
    s.secrets = &secrets;
    s.controls = geteuid() == 0;
    token_make(s.token_host);
    token_make(s.token_neighbour);
    token_make(s.token_control);
    int r = isolation(&s, &e);
    local_end(&s);
    sandboxes_remove(&s);
    int code = r < 0 ? cmd_fail(&e, EXIT_FAILED) : report(&s, is_json);
    trials_done(&s.trials);
    client_done(&s.cl);
    return code;
}
