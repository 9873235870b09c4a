/*
 * cmd_doctor.c - doctor: what this host can and cannot do, what that costs, and the command that mends it
 *
 * Needs no daemon and no token. Exit code 0: sandboxes can run; 1: something that they need is missing.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/table.h"
#include "cli/doctor/doctor.h"

#define RUN_CONF "run.conf"     /* what `make run` writes into the data directory */

/* The named file; else the usual one; else that of `make run`; else the defaults. */
static int load(struct doctor *d, const char *path, const char **ret_path, struct err *e)
{
    static char made[sizeof d->conf.data_dir + sizeof RUN_CONF + 1];

    conf_defaults(&d->conf);
    *ret_path = path;
    if (path != NULL)
        return conf_load(&d->conf, path, false, e);
    snprintf(made, sizeof made, "%s/" RUN_CONF, d->conf.data_dir);
    if (access(CONF_DEFAULT_PATH, F_OK) == 0)
        *ret_path = CONF_DEFAULT_PATH;
    else if (access(made, F_OK) == 0)
        *ret_path = made;
    return *ret_path != NULL ? conf_load(&d->conf, *ret_path, false, e) : 0;
}

static const char *text(const json_t *check, const char *key)
{
    return json_string_value(json_object_get(check, key));
}

static void print_text(const struct doctor *d)
{
    size_t i;
    const json_t *check;

    json_array_foreach(d->checks, i, check) {
        printf("%-9s %-26s %s\n", text(check, "state"), text(check, "name"), text(check, "found"));
        if (*text(check, "cost") != '\0')
            printf("%9s %-26s so: %s\n", "", "", text(check, "cost"));
        if (*text(check, "fix") != '\0')
            printf("%9s %-26s do: %s\n", "", "", text(check, "fix"));
    }
    if (d->missing > 0)
        printf("\nNot ready: %d missing, %d degraded.\n", d->missing, d->degraded);
    else
        printf("\nReady: nothing that sandboxes need is missing, %d degraded.\n", d->degraded);
}

static void print_json(const struct doctor *d, const char *path)
{
    json_t *o = json_pack("{s:b, s:i, s:i, s:o*, s:O, s:o}", "ready", d->missing == 0, "missing", d->missing, "degraded",
                          d->degraded, "config", path != NULL ? json_string(path) : json_null(), "checks", d->checks, "daemon",
                          d->daemon != NULL ? json_incref(d->daemon) : json_null());

    table_json(o);
    json_decref(o);
}

int cmd_doctor(int argc, char **argv)
{
    const char *config = NULL, *path = NULL;
    bool as_json = false;
    const struct arg args[] = {
        {0, "config", ARG_TEXT, &config, "FILE", "configuration of the daemon (default " CONF_DEFAULT_PATH ")"},
        {0, "json", ARG_FLAG, &as_json, NULL, "print JSON"},
    };
    const struct cmd c = {
        .usage = "doctor [options]", .about = "Say what this host can and cannot do, and the commands that mend it.",
        .args = args, .nargs = array_len(args), .mixed = true, .usage_code = EXIT_USAGE,
    };
    struct doctor d = {0};
    struct err e = {0};
    int done = cmd_parse(&c, &argc, argv);

    if (done >= 0)
        return done;
    if (load(&d, config, &path, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    d.checks = json_array();
    /* Children are made, so no thread may run yet: the daemon, asked by a library that may start one, comes after those. */
    doctor_check_kernel(&d);
    doctor_check_namespaces(&d);
    doctor_check_cgroups(&d);
    doctor_check_storage(&d);
    doctor_check_machine(&d);
    doctor_check_classes(&d);
    doctor_check_rules(&d);
    doctor_check_daemon(&d);
    doctor_check_ports(&d);
    if (as_json)
        print_json(&d, path);
    else
        print_text(&d);
    json_decref(d.checks);
    json_decref(d.daemon);
    return d.missing > 0 ? EXIT_FAILED : 0;
}
