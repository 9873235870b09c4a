/*
 * route.c - from method and path to a row
 *
 * The rows' paths are compiled once into a tree of segments. At a node a fixed segment goes before
 * a "{parameter}".
 */
#include <stdio.h>
#include <string.h>

#include "api/rest/rest.h"
#include "base/mem.h"

struct node {
    const char *segment; /* of a row's path; not NUL-terminated */
    size_t len;
    struct node *children, *next; /* fixed segments */
    struct node *param;           /* "{...}" */
    const struct op **ops;        /* rows that end here */
    size_t nops;
};

static struct node *root;

const struct op *rest_op(size_t i)
{
    const struct {
        const struct op *ops;
        size_t n;
    } tables[] = {
        {rest_sandbox_ops, rest_sandbox_nops}, {rest_exec_ops, rest_exec_nops},
        {rest_file_ops, rest_file_nops},       {rest_image_ops, rest_image_nops},
        {rest_operation_ops, rest_operation_nops},
        {rest_token_ops, rest_token_nops},     {rest_service_ops, rest_service_nops},
        {rest_ready_ops, rest_ready_nops},     {rest_port_ops, rest_port_nops},       {rest_pass_ops, rest_pass_nops},
        {rest_network_ops, rest_network_nops},
        {rest_policy_ops, rest_policy_nops},   {rest_secret_ops, rest_secret_nops},
    };

    for (size_t t = 0; t < array_len(tables); t++) {
        if (i < tables[t].n)
            return &tables[t].ops[i];
        i -= tables[t].n;
    }
    return NULL;
}

static struct node *node_new(const char *segment, size_t len)
{
    struct node *n = mem_zalloc(sizeof *n);

    n->segment = segment;
    n->len = len;
    return n;
}

static struct node *child_of(const struct node *n, const char *segment, size_t len)
{
    for (struct node *c = n->children; c != NULL; c = c->next)
        if (c->len == len && memcmp(c->segment, segment, len) == 0)
            return c;
    return NULL;
}

static void add(const struct op *op)
{
    struct node *at = root;

    for (const char *p = op->path; *p == '/';) {
        const char *segment = p + 1;
        size_t len = strcspn(segment, "/");
        p = segment + len;
        if (segment[0] == '{') {
            if (at->param == NULL)
                at->param = node_new(segment, len);
            at = at->param;
            continue;
        }
        struct node *c = child_of(at, segment, len);
        if (c == NULL) {
            c = node_new(segment, len);
            c->next = at->children;
            at->children = c;
        }
        at = c;
    }
    at->ops = mem_realloc(at->ops, (at->nops + 1) * sizeof *at->ops);
    at->ops[at->nops++] = op;
}

static void build(void)
{
    root = node_new("", 0);
    for (size_t i = 0; rest_op(i) != NULL; i++)
        add(rest_op(i));
}

/* The names of parameters are the row's, since rows may name the same segment differently. */
static void name_params(const struct op *op, struct route_match *m)
{
    size_t i = 0;

    for (const char *p = strchr(op->path, '{'); p != NULL && i < m->nparams; p = strchr(p, '{')) {
        p++;
        m->params[i].name = p;
        m->params[i].name_len = strcspn(p, "}");
        i++;
    }
}

static const struct node *walk(const struct node *at, const char *path, struct route_match *m)
{
    if (*path == '\0')
        return at->nops > 0 ? at : NULL;
    if (*path != '/')
        return NULL;
    const char *segment = path + 1;
    size_t len = strcspn(segment, "/");
    const struct node *c = child_of(at, segment, len);
    if (c != NULL) {
        const struct node *found = walk(c, segment + len, m);
        if (found != NULL)
            return found;
    }
    if (at->param == NULL || len == 0 || m->nparams == ROUTE_PARAMS)
        return NULL;
    m->params[m->nparams].value = segment;
    m->params[m->nparams].value_len = len;
    m->nparams++;
    const struct node *found = walk(at->param, segment + len, m);
    if (found == NULL)
        m->nparams--;
    return found;
}

void route_find(const char *method, const char *path, struct route_match *ret)
{
    if (root == NULL)
        build();
    memset(ret, 0, sizeof *ret);
    const struct node *n = walk(root, path, ret);
    if (n == NULL)
        return;
    ret->is_path = true;
    size_t len = 0;
    for (size_t i = 0; i < n->nops; i++) {
        if (strcmp(n->ops[i]->method, method) == 0)
            ret->op = n->ops[i];
        int w = snprintf(ret->allow + len, sizeof ret->allow - len, "%s%s", len > 0 ? ", " : "",
                         n->ops[i]->method);
        if (w > 0 && (size_t)w < sizeof ret->allow - len)
            len += (size_t)w;
    }
    if (ret->op != NULL)
        name_params(ret->op, ret);
}
