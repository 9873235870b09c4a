/*
 * image_fold.c - an image that comes with a long list of layers: they are copied into one
 */
#include "core/image_fold.h"

#include <string.h>

#include "base/mem.h"
#include "core/image.h"
#include "core/internal.h"
#include "json/json.h"

#define FOLD_TIMEOUT_MS (60ULL * 60 * 1000)

struct node_call *image_fold(struct core *c, Quicksand__Node__Layer **layers, size_t n, node_reply_fn fn, void *ctx)
{
    Quicksand__Node__ImageCopyRequest rq = QUICKSAND__NODE__IMAGE_COPY_REQUEST__INIT;
    auto_free char **names = mem_array(n + 1, sizeof *names);
    char root[] = "/", *items[] = {root};

    for (size_t i = 0; i < n; i++)
        names[i] = layers[i]->layer;
    rq.source = names;
    rq.n_source = n;
    rq.dest = root;
    rq.items = items;
    rq.n_items = 1;
    rq.has_keep_owner = rq.keep_owner = true;
    rq.has_max_bytes = rq.has_max_files = true;
    rq.max_bytes = IMAGE_BYTES_MAX;
    rq.max_files = IMAGE_FILES_MAX;
    return node_unary(c, "ImageCopy", &rq.base, &quicksand__node__layer__descriptor, FOLD_TIMEOUT_MS, true, fn, ctx);
}

int image_layers_put(struct store *s, Quicksand__Node__Layer **layers, size_t n,
                     const Quicksand__Node__Layer *folded, struct image_row *row, struct err *e)
{
    auto_json *list = json_array();

    if (folded == NULL && n > LIMIT_LAYERS)
        return err_set(e, ERR_TOO_LARGE, "the image has %zu layers, at most %d can be mounted", n, LIMIT_LAYERS);
    for (size_t i = 0; i < n; i++) {
        if (folded == NULL)
            (void)json_array_append_new(list, json_string(layers[i]->layer));
        if (store_layer_put(s, layers[i]->layer, (int64_t)layers[i]->bytes, (int64_t)layers[i]->files, row->created_us, e) < 0)
            return -1;
    }
    if (folded != NULL) {
        (void)json_array_append_new(list, json_string(folded->layer));
        if (store_layer_put(s, folded->layer, (int64_t)folded->bytes, (int64_t)folded->files, row->created_us, e) < 0)
            return -1;
        for (size_t i = 0; i < n; i++)
            if (strcmp(layers[i]->layer, folded->layer) != 0 && store_layer_release(s, layers[i]->layer, e) < 0)
                return -1;
    }
    free(row->layers);
    row->layers = js_text(list, false);
    return 0;
}
