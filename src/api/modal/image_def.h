/*
 * image_def.h - what a definition of one image layer asks for: an image that is there, or a build
 *
 * Pure text: called by images.c, tested alone.
 */
#ifndef QS_API_MODAL_IMAGE_DEF_H
#define QS_API_MODAL_IMAGE_DEF_H

#include <stdbool.h>
#include <stddef.h>

#define IMAGE_REF_MAX 256

enum image_def_kind {
    IMAGE_DEF_EMPTY,        /* no FROM */
    IMAGE_DEF_REF,          /* an image by its reference */
    IMAGE_DEF_BASE,         /* the base image of the request */
    IMAGE_DEF_BUILD,        /* something would have to be built */
};

struct image_def {
    enum image_def_kind kind;
    char ref[IMAGE_REF_MAX];
    char command[80];       /* BUILD: the first line that needs one, cut */
    bool has_tuning;        /* lines that only add what the image named base has */
};

/* `lines` are Dockerfile lines. */
void image_def_read(char *const *lines, size_t n, struct image_def *ret);
/* A line that a client adds to its default image. */
bool image_def_is_tuning(const char *line);
/* A Debian or Python-on-Debian image, for which the image named base can stand. */
bool image_ref_is_debian(const char *ref);
/* "name:tag" of Modal's image names as a name here: the tag latest is not spelled. false if it is no such name. */
bool image_tag_name(const char *tag, const char *environment_key, char out[IMAGE_REF_MAX]);

#endif
