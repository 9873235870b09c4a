/*
 * main.c - the file helper: finds the operation and runs it
 *
 * Called with one JSON object of one member: the operation's name and its arguments. Unknown arguments are
 * ignored. Success is status 0; failure is another status and one JSON object on stderr.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "init/fs/fs.h"
#include "init/fs/op.h"

static const struct {
    const char *name, *batch_name;      /* NULL = not in batches */
    op_fn *fn;
} ops[] = {
    {"ReadFile", "read", op_read},
    {"WriteFile", "write", op_write},
    {"ListFiles", "list", op_list},
    {"Stat", "stat", op_stat},
    {"MakeDirectory", "mkdir", op_mkdir},
    {"Remove", "remove", op_remove},
    {"Move", "move", op_move},
    {"Copy", "copy", op_copy},
    {"Chmod", "chmod", op_chmod},
    {"Chown", "chown", op_chown},
    {"Symlink", "symlink", op_symlink},
    {"ReadLink", "readlink", op_readlink},
    {"Hash", "hash", op_hash},
    {"Batch", NULL, op_batch},
    {"TarOut", NULL, op_tar_out},
    {"TarIn", NULL, op_tar_in},
    {"Watch", NULL, op_watch},
    {"Probe", NULL, op_probe},
    {"Trust", NULL, op_trust},
};

op_fn *op_find(const char *name, bool batch)
{
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (batch && ops[i].batch_name == NULL)
            continue;
        if (strcmp(ops[i].name, name) == 0 || (batch && strcmp(ops[i].batch_name, name) == 0))
            return ops[i].fn;
    }
    return NULL;
}

static int run(struct op *o, char *text, struct fs_error *e)
{
    size_t len = strlen(text);
    /* A value takes at least two bytes of text, but for the first. */
    size_t max = len / 2 + 2;
    struct json *nodes = arena_alloc(o->arena, max * sizeof *nodes);
    int r = json_parse(text, len, nodes, max);

    if (r < 0)
        return fs_fail_kind(e, "Invalid", "the argument is not JSON");
    if (nodes[0].type != JSON_OBJECT || nodes[0].count != 1)
        return fs_fail_kind(e, "Invalid", "the argument must be an object with one member");
    op_fn *fn = op_find(nodes[1].text, false);
    if (fn == NULL)
        return fs_fail_kind(e, "NotSupported", "unknown operation");
    o->args = &nodes[2];
    if (o->args->type != JSON_OBJECT)
        return fs_fail_kind(e, "Invalid", "the operation's arguments must be an object");
    if (fn(o, e) < 0)
        return -1;
    r = out_flush(o->out);
    return r < 0 ? fs_fail(e, -r) : 0;
}

int fs_main(int argc, char **argv)
{
    struct arena arena = {0};
    struct out out, err;
    struct op o = {.out = &out, .arena = &arena};
    struct fs_error e;
    int r;

    (void)prctl(PR_SET_NAME, "fs-tools");
    (void)signal(SIGPIPE, SIG_IGN);     /* a reader that left is an error like others */
    out_init(&out, 1);
    if (argc != 2)
        r = fs_fail_kind(&e, "Invalid", "one argument is expected");
    else
        r = run(&o, argv[1], &e);
    if (r == 0)
        return 0;
    out_init(&err, 2);
    fs_error_print(&err, &e);
    out_text(&err, "\n");
    (void)out_flush(&err);
    return 1;
}
