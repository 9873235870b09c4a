/*
 * cli_test.c - the command line's own parsing: options, configuration, terminal modes
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cli/args.h"
#include "cli/config.h"
#include "cli/modes.h"

struct parsed {
    bool tty, input;
    const char *dir;
    struct arg_list env;
    int argc;
    char *argv[16];
    struct err e;
    int result;
};

static void parse(struct parsed *p, bool mixed, const char *const *words)
{
    const struct arg table[] = {
        {'t', "tty", ARG_FLAG, &p->tty, NULL, ""},
        {'i', "interactive", ARG_FLAG, &p->input, NULL, ""},
        {'w', "workdir", ARG_TEXT, &p->dir, "DIR", ""},
        {'e', "env", ARG_LIST, &p->env, "K=V", ""},
    };

    memset(p, 0, sizeof *p);
    p->argv[p->argc++] = (char *)(uintptr_t)"cmd";
    for (; *words != NULL; words++)
        p->argv[p->argc++] = (char *)(uintptr_t)*words;
    p->result = args_parse(table, array_len(table), mixed, &p->argc, p->argv, &p->e);
}

#define PARSE(p, mixed, ...) parse(p, mixed, (const char *const[]){__VA_ARGS__, NULL})

static void options_come_in_all_forms(void **state)
{
    struct parsed p;

    PARSE(&p, false, "-it", "-w", "/a", "-eX=1", "--env=Y=2", "--env", "Z", "sb", "ls", "-l");
    assert_int_equal(p.result, 0);
    assert_true(p.tty && p.input);
    assert_string_equal(p.dir, "/a");
    assert_int_equal(p.env.n, 3);
    assert_string_equal(p.env.items[0], "X=1");
    assert_string_equal(p.env.items[1], "Y=2");
    assert_string_equal(p.env.items[2], "Z");
    assert_int_equal(p.argc, 3);
    assert_string_equal(p.argv[2], "-l");
    free(p.env.items);
}

static void options_end_at_the_first_word_or_two_dashes(void **state)
{
    struct parsed p;

    PARSE(&p, false, "sb", "-t");
    assert_false(p.tty);
    assert_int_equal(p.argc, 2);
    PARSE(&p, true, "sb", "-t", "--", "-i");
    assert_true(p.tty);
    assert_false(p.input);
    assert_int_equal(p.argc, 2);
    assert_string_equal(p.argv[1], "-i");
    PARSE(&p, false, "--", "-t");
    assert_false(p.tty);
    assert_int_equal(p.argc, 1);
    PARSE(&p, false, "-", "-t");
    assert_int_equal(p.argc, 2);
}

static void wrong_options_are_named(void **state)
{
    struct parsed p;

    PARSE(&p, false, "-x");
    assert_int_equal(p.result, -1);
    assert_non_null(strstr(p.e.message, "-x"));
    PARSE(&p, false, "--nope");
    assert_non_null(strstr(p.e.message, "--nope"));
    PARSE(&p, false, "--tty=1");
    assert_int_equal(p.result, -1);
    PARSE(&p, false, "-w");
    assert_int_equal(p.result, -1);
    PARSE(&p, false, "--workdir");
    assert_int_equal(p.result, -1);
}

static void numbers_are_whole_texts(void **state)
{
    struct err e;
    long long i;
    double d;

    assert_int_equal(args_int("-m", "12", &i, &e), 0);
    assert_int_equal(i, 12);
    assert_int_equal(args_int("-m", "12x", &i, &e), -1);
    assert_int_equal(args_int("-m", "", &i, &e), -1);
    assert_int_equal(args_int("-m", "99999999999999999999", &i, &e), -1);
    assert_int_equal(args_number("-c", "1.5", &d, &e), 0);
    assert_int_equal(args_number("-c", "nan", &d, &e), -1);
    assert_int_equal(args_number("-c", "inf", &d, &e), -1);
}

static void the_configuration_is_lines(void **state)
{
    struct cli_config c = {0};
    char good[] = "# comment\n\n url = http://h:1/\r\ntoken=a.b\n", bad[] = "tokn = x\n", none[] = "url\n";
    struct err e;

    assert_int_equal(cli_config_parse(&c, good, &e), 0);
    assert_string_equal(c.url, "http://h:1/");
    assert_string_equal(c.token, "a.b");
    assert_int_equal(cli_config_parse(&c, bad, &e), -1);
    assert_non_null(strstr(e.message, "line 1"));
    assert_int_equal(cli_config_parse(&c, none, &e), -1);
}

/* What undoes the output, fed whole and a byte at a time. */
static void check_undo(const char *output, const char *expected, bool asked)
{
    struct modes whole = {0}, single = {0};
    struct buf a, b;

    buf_init(&a, 4096);
    buf_init(&b, 4096);
    modes_feed(&whole, output, strlen(output));
    for (size_t i = 0; output[i] != '\0'; i++)
        modes_feed(&single, output + i, 1);
    modes_undo(&whole, &a);
    modes_undo(&single, &b);
    assert_string_equal(buf_str(&a), expected);
    assert_string_equal(buf_str(&b), expected);
    assert_int_equal(whole.asked, asked);
    buf_done(&a);
    buf_done(&b);
}

static void modes_left_on_are_switched_off(void **state)
{
    check_undo("plain text\r\n", "", false);
    check_undo("\033[?1049h\033[?2004h\033[?2004l", "\033[?1049l", false);
    check_undo("\033[?1000;1006h", "\033[?1000l\033[?1006l", false);
    check_undo("\033[?25l", "\033[?25h", false);
    check_undo("\033[?25l\033[?25h", "", false);
    check_undo("\033=", "\033>", false);
    check_undo("\033[31mred", "\033[m", false);
    check_undo("\033[?1049h\033c", "", false);
}

static void questions_to_the_terminal_are_noticed(void **state)
{
    check_undo("\033[6n", "", true);
    check_undo("\033[c", "", true);
    check_undo("\033[21t", "", true);
    check_undo("\033]52;c;?\007", "", true);
    check_undo("\033P+q544e\033\\", "", true);
    check_undo("\005", "", true);
    check_undo("\033]0;title", "\033\\", true);     /* never ended: it would swallow what follows */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_come_in_all_forms),
        cmocka_unit_test(options_end_at_the_first_word_or_two_dashes),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(numbers_are_whole_texts),
        cmocka_unit_test(the_configuration_is_lines),
        cmocka_unit_test(modes_left_on_are_switched_off),
        cmocka_unit_test(questions_to_the_terminal_are_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
