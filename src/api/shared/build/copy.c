/*
 * copy.c - COPY and ADD: asked of the image role, which needs no sandbox for them
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/internal.h"
#include "base/mem.h"
#include "core/image.h"

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
        if (h == NULL) {
            if (strstr(word, "://") != NULL)
                return df_fail(in, e, "'%.80s': files are not fetched from other places; put them into the build context", word);
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

static int send_copy(struct build *b, const struct df_instruction *in, const json_t *words, struct err *e)
{
    Quicksand__Node__ImageCopyRequest rq = QUICKSAND__NODE__IMAGE_COPY_REQUEST__INIT;
    struct stage *s = build_stage(b);
    const char *dest = json_string_value(json_array_get(words, json_array_size(words) - 1));
    const char *chmod = df_flag(in, "chmod"), *chown = df_flag(in, "chown");
    auto_free char *path = build_path(s, dest), *owner = NULL, *mode = NULL;
    auto_json *source = NULL;
    struct parts parts = {0};
    bool is_context = false;
    int r = -1;

    owner = chown != NULL ? build_expand(b, chown, e) : mem_strdup("");
    mode = chmod != NULL ? build_expand(b, chmod, e) : mem_strdup("");
    if (owner == NULL || mode == NULL)
        return -1;
    if (chmod != NULL && octal(in, mode, &rq.mode, e) < 0)
        return -1;
    if (build_find_source(b, in, df_flag(in, "from"), &source, &is_context, e) == 0 && read_parts(b, in, words, &parts, e) == 0) {
        size_t n = strlen(dest);
        rq.has_mode = chmod != NULL;
        rq.owner = owner;
        rq.dest = path;
        rq.has_dest_is_dir = rq.has_keep_owner = rq.has_is_context = rq.has_extract = true;
        rq.dest_is_dir = dest[n - 1] == '/' || strcmp(dest, ".") == 0 || (n > 1 && strcmp(dest + n - 2, "/.") == 0) ||
                         parts.nitems + parts.ntexts > 1;
        rq.keep_owner = !is_context;
        rq.is_context = is_context;
        rq.has_keep_ignored = true;
        rq.keep_ignored = b->whole_context;
        rq.extract = in->kind == DF_ADD;
        rq.items = parts.items;
        rq.n_items = parts.nitems;
        rq.texts = parts.list;
        rq.n_texts = parts.ntexts;
        ask(b, &rq, source, s->layers);
        r = 1;
    }
    parts_done(&parts);
    return r;
}

int build_copy(struct build *b, const struct df_instruction *in, struct err *e)
{
    static const char *const names[] = {"from", "chown", "chmod", "link"};
    const struct df_shell sh = {.escape = b->file.escape, .lookup = build_lookup, .ctx = b};
    auto_json *words = NULL;

    if (df_check_flags(in, names, array_len(names), e) < 0)
        return -1;
    if (in->kind == DF_ADD && df_flag(in, "from") != NULL)
        return df_fail(in, e, "there is no flag --from");
    words = in->json != NULL ? json_incref(in->json) : df_words(&sh, in->text, e);
    if (words == NULL)
        return -1;
    size_t n = json_array_size(words);
    if (n < 2)
        return df_fail(in, e, "it needs a source and a destination");
    if (*json_string_value(json_array_get(words, n - 1)) == '\0')
        return df_fail(in, e, "the destination is empty");
    return send_copy(b, in, words, e);
}
