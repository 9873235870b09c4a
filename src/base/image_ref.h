/*
 * image_ref.h - references to images in registries, and names of images here
 *
 * "python:3.12-slim", "localhost:5000/a/b@sha256:...": what users write for an image. Pure text. Used by core and the dialects
 * for names, by the image role for addresses.
 */
#ifndef QS_BASE_IMAGE_REF_H
#define QS_BASE_IMAGE_REF_H

#include "base/err.h"

#define IMAGE_REF_SIZE 300          /* room for a reference or a name, with its NUL */
#define IMAGE_DIGEST_SIZE 72        /* "sha256:" and 64 digits, with its NUL */

struct image_ref {
    char registry[128];             /* host with optional port: "docker.io" when none was written */
    char repository[256];           /* "library/python" */
    char tag[129];                  /* "latest" when neither tag nor digest were written; "" with a digest alone */
    char digest[IMAGE_DIGEST_SIZE]; /* "" = none */
};

int image_ref_parse(const char *text, struct image_ref *ret, struct err *e);
bool image_digest_is_valid(const char *text);   /* "sha256:" and 64 lower-case digits */
/* The name by which an image is known here: docker.io/, library/ and :latest are not spelled. Names that differ only in these
 * are one name. ERR_INVALID if it is none: at most 255 bytes of parts [A-Za-z0-9._-] divided by '/', the first may
 * have a port, with an optional :tag. */
int image_name_normalize(const char *text, char ret[IMAGE_REF_SIZE], struct err *e);

#endif
