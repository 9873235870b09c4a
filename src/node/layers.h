/*
 * layers.h - the image role's list of layers as messages of node.proto
 */
#ifndef QS_NODE_LAYERS_H
#define QS_NODE_LAYERS_H

#include "ipc/image_proto.h"
#include "node.pb-c.h"

struct layer_messages {
    Quicksand__Node__Layer *items;      /* texts are those of the list they were made of */
    Quicksand__Node__Layer **list;
};

void layer_messages_make(struct layer_messages *ret, const struct image_layers *layers);
void layer_messages_done(struct layer_messages *m);

#endif
