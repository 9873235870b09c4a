/*
 * layers.c - see layers.h
 */
#include "node/layers.h"

#include <stdlib.h>

#include "base/mem.h"

void layer_messages_make(struct layer_messages *ret, const struct image_layers *layers)
{
    ret->items = mem_array(layers->nlayers + 1, sizeof *ret->items);
    ret->list = mem_array(layers->nlayers + 1, sizeof *ret->list);
    for (uint32_t i = 0; i < layers->nlayers; i++) {
        quicksand__node__layer__init(&ret->items[i]);
        ret->items[i].layer = (char *)(uintptr_t)layers->layers[i].layer;
        ret->items[i].has_bytes = ret->items[i].has_files = 1;
        ret->items[i].bytes = layers->layers[i].bytes;
        ret->items[i].files = layers->layers[i].files;
        ret->list[i] = &ret->items[i];
    }
}

void layer_messages_done(struct layer_messages *m)
{
    free(m->items);
    free(m->list);
}
