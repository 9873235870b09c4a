/*
 * job.h - one request to the image role, in a child process of its own
 */
#ifndef QS_IMAGE_JOB_H
#define QS_IMAGE_JOB_H

#include "base/err.h"

#define STAGING ".staging"          /* below the layers directory: trees that are not complete */

struct job {
    int conn;                       /* the connection that asked */
    int layers;                     /* the layers directory */
    int alive;                      /* read end of a pipe that the role holds open */
    char name[32];                  /* of the tree in STAGING */
};

/* Serves the connection to its end. The exit status of the child: 0 = the answer was sent. */
int job_run(const struct job *job);

/* Sends the answer of a job that failed. */
void job_send_error(int conn, const struct err *e);

#endif
