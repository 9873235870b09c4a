/*
 * handlers.h - the handlers behind the tables of execs.c, files.c and images.c that have a file of their own
 */
#ifndef QS_API_REST_HANDLERS_H
#define QS_API_REST_HANDLERS_H

#include "api/rest/op.h"

#define RUN_OUTPUT_MAX 67108864     /* bytes of a stream in the answer of run */

/* run.c */
void exec_run(struct call *c);
/* stdio.c: raw output; the entry point's for paths without {exec_id} */
void exec_stdout(struct call *c);
void exec_stderr(struct call *c);
void sandbox_logs(struct call *c);
/* stdio_events.c, stdio_ws.c */
void exec_events(struct call *c);
void exec_ws(struct call *c);
/* sandbox_events.c */
void sandbox_events(struct call *c);
/* stdio_in.c */
void exec_stdin(struct call *c);
void sandbox_stdin(struct call *c);
void exec_stdin_status(struct call *c);
/* files_stream.c */
void file_get(struct call *c);
void file_archive_get(struct call *c);
/* files_upload.c */
void file_put(struct call *c);
void file_archive_put(struct call *c);
/* files_watch.c */
void file_watch(struct call *c);
/* files_batch.c */
void file_batch(struct call *c);
/* image_export.c */
void image_export_get(struct call *c);

#endif
