/*
 * image_config.h - configurations of images: JSON as registries and builders have it, and what sandboxes get of it
 */
#ifndef QS_CORE_IMAGE_CONFIG_H
#define QS_CORE_IMAGE_CONFIG_H

#include "json/json.h"
#include "store/store.h"

/*
 * Fills config, env, workdir and user of `row` from the text of an image configuration ({"config": {...}, "history": [...]}).
 * Everything in it may have been written by a stranger: what sandboxes could not be given is an error.
 */
int image_config_read(const char *text, struct image_row *row, struct err *e);
/* The same from an object. */
int image_config_apply(const json_t *whole, struct image_row *row, struct err *e);
/* Whether the fields of a "config" are of the kinds that everybody who reads them takes for granted; NULL is. */
int image_config_kinds(const json_t *config, struct err *e);
/* The other way: what `row` says as a configuration without its `rootfs`, for an image of so many layers. */
json_t *image_config_make(const struct image_row *row, size_t nlayers);

#endif
