/*
 * files.c - what the monitor leaves in the run directory: status, execs, exit (ipc/record.h)
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "monitor/monitor.h"
#include "sys/fd.h"

#define MODE 0640

static int write_record(const char *name, const struct sandbox_record *r)
{
    uint8_t out[1024];
    size_t n = sandbox_record_encode(r, out, sizeof out);

    /* No sync: a machine that loses power loses its sandboxes too. */
    return fd_replace_file(mon.run_dir, name, out, n, MODE, false);
}

void files_status(void)
{
    mon.r.execs_live = execs_shown();
    mon.status_dirty = false;
    /* A full disk must not end the sandbox; the node then asks the monitor. */
    (void)write_record("status", &mon.r);
}

/* One pass over what is kept: output to files, records to the journal. */
static int write_execs(void)
{
    auto_close int fd =
        openat(mon.run_dir, "execs", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, MODE);
    struct wire_writer w;
    uint8_t record[1024];
    int r = fd < 0 ? -errno : 0;

    wire_init(&w, tx_buffer, sizeof tx_buffer);
    for (struct exec *e = exec_oldest(); e != NULL; e = exec_newer(e)) {
        struct exec_record out;
        int flushed = e->hidden ? 0 : spool_flush(e);
        if (flushed < 0 && r == 0)
            r = flushed;
        if (e->hidden || fd < 0)
            continue;
        exec_fill(e, &out);
        size_t n = exec_record_encode(&out, record, sizeof record);
        if (w.size - w.len < n + 4) {
            int written = fd_write_all(fd, w.data, w.len);
            r = r == 0 ? written : r;
            w.len = 0;
        }
        wire_put_bytes(&w, record, n);
    }
    if (fd >= 0) {
        int written = fd_write_all(fd, w.data, w.len);
        r = r == 0 ? written : r;
    }
    return r;
}

void files_finish(void)
{
    int r = write_execs();

    if (r < 0 && mon.r.message[0] == '\0') {
        static const char text[] = "output or exec records could not be written to the run directory";
        memcpy(mon.r.message, text, sizeof text);
    }
    mon.r.execs_live = 0;
    usage_fill(&mon.r);
    (void)write_record("exit", &mon.r);     /* who waits is told the same by peers_finish() */
    (void)unlinkat(mon.run_dir, "monitor.sock", 0);
}
