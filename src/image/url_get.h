/*
 * url_get.h - the process that fetches one file over HTTP for a job, under a policy
 *
 * Forked by url_fetch.c. It gets an open file to write and an end of a pipe to answer on; what it answers is checked there.
 */
#ifndef QS_IMAGE_URL_GET_H
#define QS_IMAGE_URL_GET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf.h"
#include "ipc/image_proto.h"

#define URL_VALIDATOR_MAX 512

/* What a server says of a version of a file, for the next question: either may be "". */
struct url_validator {
    char etag[URL_VALIDATOR_MAX], modified[64];
};

/* Between processes of one program. */
struct url_got {
    uint16_t code;                  /* enum err_code; 0 = the file is there, or is_same */
    char message[240];
    bool is_same;                   /* nothing has changed since `known` */
    int64_t modified_s;             /* 0 = not said */
    struct url_validator validator;
};

/* Runs in the child, which is confined already. `known` = NULL: nothing is known of it. Its exit status. */
int url_get_run(const struct image_fetch *rq, const struct conf *conf, const struct url_validator *known, int file, int answer);

#endif
