/*
 * job.h - one request to the image role, in a child process of its own
 */
#ifndef QS_IMAGE_JOB_H
#define QS_IMAGE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/conf.h"
#include "base/err.h"

#define STAGING ".staging"          /* below the layers directory: trees that are not complete */
#define BLOBS ".blobs"              /* and compressed layers that are being pulled; parts survive a job, to be continued */

#define SUMS ".sums"                /* a file a layer: the sum of its tree */
#define DAMAGED ".damaged"          /* an empty file for each layer that is to be replaced */
#define REPLACED ".replaced"        /* what was replaced, for the sandboxes that still live on it */

struct job {
    const struct conf *conf;
    int conn;                       /* the connection that asked */
    int layers;                     /* the layers directory */
    int alive;                      /* read end of a pipe that the role holds open */
    char name[40];                  /* of the tree in STAGING */
};

/* Serves the connection to its end. The exit status of the child: 0 = the answer was sent. */
int job_run(const struct job *job);

/* Whether who asked has left, or the role ends. */
bool job_is_cancelled(const struct job *job);
/* To the connection, waiting a short time for room; what does not fit then is lost with the connection. */
void job_send(int conn, uint16_t type, const void *p, size_t n);
/* Sends the answer of a job that failed. */
void job_send_error(int conn, const struct err *e);

#endif
