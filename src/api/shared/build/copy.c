/*
 * copy.c - COPY and ADD: asked of the image role, which needs no sandbox for them
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/internal.h"
#include "base/buf.h"
#include "base/mem.h"
#include "core/image.h"
#include "ipc/image_proto.h"

#define COPY_TIMEOUT_MS (30ULL * 60 * 1000)

static char **strings(const json_t *list)
{
    size_t n = json_array_size(list);
    char **out = mem_array(n + 1, sizeof *out);

    for (size_t i = 0; i < n; i++)
        out[i] = (char *)(uintptr_t)json_string_value(json_array_get(list, i));
    return out;
}

static void on_copied(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct build *b = ctx;
    const Quicksand__Node__Layer *layer = (const Quicksand__Node__Layer *)reply;

    b->call = NULL;
    if (e != NULL) {
        build_failed(b, e);
        return;
    }
    if (b->is_flattening) {
        b->is_flattening = false;
        (void)json_array_clear(build_stage(b)->layers);
    }
    build_add_layer(b, layer->layer, layer->bytes, layer->files, false);
    build_step_done(b);
}

void build_copy_cancel(struct build *b)
{
    node_call_cancel(b->call);
    b->call = NULL;
    build_step_done(b);                 /* which sees why */
}

/* Of an ADD with URLs too: those come next. */
static void on_half_copied(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct build *b = ctx;

    b->is_half_copied = b->is_again = e == NULL;
    on_copied(ctx, reply, e);
}

void build_copy_call(struct build *b, Quicksand__Node__ImageCopyRequest *rq, const json_t *source, const json_t *onto,
                     node_reply_fn fn, void *ctx)
{
    auto_free char **from = strings(source), **to = strings(onto);

    rq->source = from;
    rq->n_source = json_array_size(source);
    rq->onto = to;
    rq->n_onto = json_array_size(onto);
    rq->has_max_bytes = rq->has_max_files = true;
    rq->max_bytes = IMAGE_BYTES_MAX;
    rq->max_files = IMAGE_FILES_MAX;
    b->call = node_unary(b->core, "ImageCopy", &rq->base, &quicksand__node__layer__descriptor, COPY_TIMEOUT_MS, true, fn, ctx);
}

static void ask(struct build *b, Quicksand__Node__ImageCopyRequest *rq, const json_t *source, const json_t *onto)
{
    build_copy_call(b, rq, source, onto, on_copied, b);
}

int build_make_dir(struct build *b, const char *path, const char *owner, struct err *e)
{
    Quicksand__Node__ImageCopyRequest rq = QUICKSAND__NODE__IMAGE_COPY_REQUEST__INIT;
    json_t *none = json_array();

    (void)e;
    rq.dest = (char *)(uintptr_t)path;
    rq.owner = (char *)(uintptr_t)owner;
    ask(b, &rq, none, build_stage(b)->layers);
    json_decref(none);
    return 1;
}

int build_flatten(struct build *b, struct err *e)
{
    Quicksand__Node__ImageCopyRequest rq = QUICKSAND__NODE__IMAGE_COPY_REQUEST__INIT;
    char *items[] = {(char *)(uintptr_t)"/"};
    json_t *none = json_array();

    (void)e;
    rq.dest = items[0];
    rq.items = items;
    rq.n_items = 1;
    rq.has_keep_owner = rq.keep_owner = true;
    b->is_flattening = true;
    operation_log(b->operation, "(the image has %zu layers: they are copied into one)", json_array_size(build_stage(b)->layers));
    ask(b, &rq, build_stage(b)->layers, none);
    json_decref(none);
    return 1;
}

static int octal(const struct df_instruction *in, const char *text, int32_t *ret, struct err *e)
{
    char *end;
    long v = strtol(text, &end, 8);

    if (*text < '0' || *text > '7' || *end != '\0' || v > 07777)
        return df_fail(in, e, "--chmod is '%.20s', which is no octal mode such as 0755", text);
    *ret = (int32_t)v;
    return 0;
}

/* Where the files come from: a stage, an image that is here, or the context. */
int build_find_source(struct build *b, const struct df_instruction *in, const char *from, json_t **ret, bool *ret_context,
                      struct err *e)
{
    auto_image_row row = {0};
    struct err ignored;

    *ret_context = from == NULL;
    if (from == NULL) {
        *ret = b->context[0] != '\0' ? json_pack("[s]", b->context) : json_array();
        return 0;
    }
    auto_free char *name = build_expand(b, from, e);
    if (name == NULL)
        return -1;
    const struct stage *s = build_find_stage(b, name, true);
    if (s != NULL) {
        *ret = json_incref(s->layers);
        return 0;
    }
    const char *mapped = json_string_value(json_object_get(b->bases, name));
    if (image_get(b->core, mapped != NULL ? mapped : name, &row, &ignored) < 0)
        return df_fail(in, e, "--from names neither a stage before it nor an image that is here: '%.80s'", name);
    *ret = json_loads(row.layers, 0, NULL);
    return *ret != NULL ? 0 : err_set(e, ERR_INTERNAL, "layers of %s", row.id);
}

static char *normal_item(const char *item)
{
    while (*item == '/')
        item++;
    return mem_strdup(*item != '\0' ? item : ".");
}

struct parts {
    char **items;
    size_t nitems;
    Quicksand__Node__CopyText *texts, **list;
    char **contents;
    size_t ntexts;
};

static void parts_done(struct parts *p)
{
    for (size_t i = 0; i < p->nitems; i++)
        free(p->items[i]);
    for (size_t i = 0; i < p->ntexts; i++)
        free(p->contents[i]);
    free(p->items);
    free(p->texts);
    free(p->list);
    free(p->contents);
}

/* A word "<<EOF" stands for the here-document of that name. */
static const struct df_heredoc *heredoc_of(const struct df_instruction *in, const char *word)
{
    if (strncmp(word, "<<", 2) != 0)
        return NULL;
    word += word[2] == '-' ? 3 : 2;
    for (size_t i = 0; i < in->nheredocs; i++)
        if (strcmp(in->heredocs[i].name, word) == 0)
            return &in->heredocs[i];
    return NULL;
}

static int read_parts(struct build *b, const struct df_instruction *in, const json_t *words, struct parts *p, struct err *e)
{
    size_t n = json_array_size(words) - 1;

    p->items = mem_array(n + 1, sizeof *p->items);
    p->texts = mem_array(n + 1, sizeof *p->texts);
    p->list = mem_array(n + 1, sizeof *p->list);
    p->contents = mem_array(n + 1, sizeof *p->contents);
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(words, i));
        const struct df_heredoc *h = heredoc_of(in, word);
        if (in->kind == DF_ADD && build_is_url(word))
            continue;
        if (df_flag(in, "from") == NULL && build_is_url(word))
            return df_fail(in, e, "'%.80s' is a URL: ADD fetches files, COPY does not", word);
        if (h == NULL) {
            p->items[p->nitems++] = normal_item(word);
            continue;
        }
        const struct df_shell sh = {.escape = '\\', .lookup = build_lookup, .ctx = b, .keeps_quotes = true};
        char *text = h->expand ? df_expand(&sh, h->text, e) : mem_strdup(h->text);
        if (text == NULL)
            return -1;
        Quicksand__Node__CopyText *t = &p->texts[p->ntexts];
        quicksand__node__copy_text__init(t);
        p->contents[p->ntexts] = text;
        p->list[p->ntexts++] = t;
        t->name = h->name;
        t->has_text = true;
        t->text = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
    }
    return 0;
}

/* Where an instruction copies to and how: shared by its parts. */
struct target {
    char *path, *owner;                 /* owned */
    char *exclude;                      /* lines; owned, NULL = nothing is left out */
    bool parents;
    int32_t mode;                       /* -1 = as it is */
    bool is_dir;
};

static void target_done(struct target *t)
{
    free(t->path);
    free(t->owner);
    free(t->exclude);
}

/* Patterns of --exclude, a line each. */
static int read_exclude(struct build *b, const struct df_instruction *in, char **ret, struct err *e)
{
    auto_buf lines = {0};

    buf_init(&lines, sizeof((struct image_copy *)0)->exclude);
    for (size_t i = 0; i < in->nflags; i++) {
        if (strcmp(in->flags[i].name, "exclude") != 0)
            continue;
        auto_free char *pattern = build_expand(b, in->flags[i].value, e);
        if (pattern == NULL)
            return -1;
        if (*pattern == '\0')
            return df_fail(in, e, "--exclude is empty");
        (void)buf_adds(&lines, pattern);
        (void)buf_addc(&lines, '\n');
    }
    if (lines.failed || lines.len >= lines.max)
        return df_fail(in, e, "the patterns of --exclude have more than %zu bytes", lines.max - 1);
    *ret = lines.len > 0 ? mem_strdup(buf_str(&lines)) : NULL;
    return 0;
}

static int read_bool(const struct df_instruction *in, const char *name, bool *ret, struct err *e)
{
    const char *value = df_flag(in, name);

    *ret = value != NULL && (*value == '\0' || strcmp(value, "true") == 0);
    return value == NULL || *ret || strcmp(value, "false") == 0
               ? 0
               : df_fail(in, e, "--%s is true or false, not '%.40s'", name, value);
}

static int read_target(struct build *b, const struct df_instruction *in, const json_t *words, struct target *ret, struct err *e)
{
    size_t nwords = json_array_size(words);
    const char *dest = json_string_value(json_array_get(words, nwords - 1)),
               *chmod = df_flag(in, "chmod"), *chown = df_flag(in, "chown");
    auto_free char *mode = chmod != NULL ? build_expand(b, chmod, e) : mem_strdup("");
    size_t n = strlen(dest);

    ret->mode = -1;
    ret->path = build_path(build_stage(b), dest);
    ret->owner = chown != NULL ? build_expand(b, chown, e) : mem_strdup("");
    ret->is_dir = dest[n - 1] == '/' || strcmp(dest, ".") == 0 || (n > 1 && strcmp(dest + n - 2, "/.") == 0) || nwords > 2;
    if (mode == NULL || ret->owner == NULL || read_exclude(b, in, &ret->exclude, e) < 0 ||
        read_bool(in, "parents", &ret->parents, e) < 0)
        return -1;
    return chmod != NULL ? octal(in, mode, &ret->mode, e) : 0;
}

static void fill(Quicksand__Node__ImageCopyRequest *rq, const struct target *t)
{
    rq->has_mode = t->mode >= 0;
    rq->mode = t->mode;
    rq->owner = t->owner;
    rq->dest = t->path;
    rq->has_dest_is_dir = rq->has_keep_owner = true;
    rq->dest_is_dir = t->is_dir;
}

static int send_copy(struct build *b, const struct df_instruction *in, const json_t *words, const struct target *t, struct err *e)
{
    Quicksand__Node__ImageCopyRequest rq = QUICKSAND__NODE__IMAGE_COPY_REQUEST__INIT;
    auto_json *source = NULL;
    struct parts parts = {0};
    bool is_context = false;
    int r = -1;

    if (build_find_source(b, in, df_flag(in, "from"), &source, &is_context, e) == 0 && read_parts(b, in, words, &parts, e) == 0) {
        fill(&rq, t);
        rq.exclude = t->exclude;
        rq.has_parents = true;
        rq.parents = t->parents;
        rq.has_is_context = rq.has_extract = rq.has_keep_ignored = true;
        rq.keep_owner = !is_context;
        rq.is_context = is_context;
        rq.keep_ignored = b->whole_context;
        rq.extract = in->kind == DF_ADD;
        rq.items = parts.items;
        rq.n_items = parts.nitems;
        rq.texts = parts.list;
        rq.n_texts = parts.ntexts;
        build_copy_call(b, &rq, source, build_stage(b)->layers, json_object_size(b->urls) > 0 ? on_half_copied : on_copied, b);
        r = 1;
    }
    parts_done(&parts);
    return r;
}

/* What was fetched for the URLs among the words; of two with one name the later one counts. */
static int send_fetched(struct build *b, const json_t *words, const struct target *t)
{
    Quicksand__Node__ImageCopyRequest rq = QUICKSAND__NODE__IMAGE_COPY_REQUEST__INIT;
    auto_json *source = json_array();
    struct parts parts = {0};
    const json_t *word;
    size_t i;

    parts.items = mem_array(json_array_size(words), sizeof *parts.items);
    json_array_foreach(words, i, word) {
        const json_t *got = json_object_get(b->urls, json_string_value(word));
        if (got == NULL)
            continue;
        parts.items[parts.nitems++] = build_url_item(json_string_value(json_array_get(got, 1)));
        (void)json_array_insert(source, 0, json_array_get(got, 0));
    }
    fill(&rq, t);
    rq.keep_owner = true;
    rq.items = parts.items;
    rq.n_items = parts.nitems;
    ask(b, &rq, source, build_stage(b)->layers);
    parts_done(&parts);
    return 1;
}

static size_t count_others(const json_t *words)
{
    size_t n = 0;

    for (size_t i = 0; i + 1 < json_array_size(words); i++)
        n += !build_is_url(json_string_value(json_array_get(words, i)));
    return n;
}

/* Every COPY and ADD is a layer that depends on nothing below it, so that nothing else is to be done for it. */
static int check_link(const struct df_instruction *in, struct err *e)
{
    const char *link = df_flag(in, "link");

    if (link == NULL || *link == '\0' || strcmp(link, "true") == 0 || strcmp(link, "false") == 0)
        return 0;
    return df_fail(in, e, "--link is '%.20s', which is neither true nor false", link);
}

int build_copy(struct build *b, const struct df_instruction *in, struct err *e)
{
    static const char *const names[] = {"chown", "chmod", "link", "exclude", "from", "parents", "checksum"};
    const struct df_shell sh = {.escape = b->file.escape, .lookup = build_lookup, .ctx = b};
    auto_json *words = NULL;

    static const struct {
        const char *name;
        enum df_kind kind;
    } others[] = {{"from", DF_COPY}, {"parents", DF_COPY}, {"checksum", DF_ADD}};
    struct target target = {0};

    if (df_check_flags(in, names, array_len(names), e) < 0 || check_link(in, e) < 0)
        return -1;
    for (size_t i = 0; i < array_len(others); i++)
        if (df_flag(in, others[i].name) != NULL && in->kind != others[i].kind)
            return df_fail(in, e, "there is no flag --%s", others[i].name);
    words = in->json != NULL ? json_incref(in->json) : df_words(&sh, in->text, e);
    if (words == NULL)
        return -1;
    size_t n = json_array_size(words);
    if (n < 2)
        return df_fail(in, e, "it needs a source and a destination");
    if (*json_string_value(json_array_get(words, n - 1)) == '\0')
        return df_fail(in, e, "the destination is empty");
    int r = in->kind == DF_ADD ? build_fetch_urls(b, in, words, e) : 0;
    if (r == 0)
        r = read_target(b, in, words, &target, e);
    /* Sources that are no URLs come first. */
    if (r == 0 && (json_object_size(b->urls) == 0 || (count_others(words) > 0 && !b->is_half_copied)))
        r = send_copy(b, in, words, &target, e);
    else if (r == 0)
        r = send_fetched(b, words, &target);
    target_done(&target);
    return r;
}
