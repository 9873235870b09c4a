/*
 * requests.c - what the node asks of a monitor
 *
 * Each handler decodes one message and leaves exactly one waiter for its reply. A message that does not
 * decode closes the connection; a request that cannot be met is answered with an error.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/clock.h"
#include "base/ids.h"
#include "monitor/monitor.h"

#define EXEC_FLAGS                                                                     \
    ((uint32_t)(MON_EXEC_TTY | MON_EXEC_STDIN | MON_EXEC_NO_STDOUT | MON_EXEC_NO_STDERR | \
                MON_EXEC_MERGE | MON_EXEC_ENTRY | MON_EXEC_HIDDEN))

static bool is_ending(void)
{
    return mon.phase >= PHASE_STOP;
}

static int64_t wait_until(uint32_t wait_ms)
{
    uint32_t most = (uint32_t)LIMIT_WAIT_MAX * 1000;

    return mon.now_ms + (wait_ms < most ? wait_ms : most);
}

/* The exec that a request names; with NULL the error has been answered. */
static struct exec *find(unsigned peer, uint32_t tag, const char *exec_id, const char *container)
{
    if (container[0] != '\0') {
        waiter_error(peer, tag, ERR_NOT_FOUND, "container", "no such container in the sandbox");
        return NULL;
    }
    struct exec *e = exec_by_id(exec_id);
    if (e == NULL) {
        char text[LIMIT_ID + 40];
        (void)snprintf(text, sizeof text, "no exec '%s' in the sandbox", exec_id);
        waiter_error(peer, tag, ERR_NOT_FOUND, "exec_id", text);
    }
    return e;
}

static void answer_ok(unsigned peer, uint32_t tag)
{
    waiter_try(waiter_new(peer, tag, FOR_OK, NULL));
}

/* FNV-1a over everything that makes one exec different from another. */
static uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    const uint8_t *at = p;

    for (size_t i = 0; i < n; i++)
        h = (h ^ at[i]) * 0x100000001b3;
    return h;
}

static uint64_t hash_of(const struct mon_exec *m)
{
    const uint64_t numbers[] = {m->flags, m->timeout_ms, m->grace_ms, m->output_limit, m->rows, m->cols};

    return hash_bytes(hash_bytes(0xcbf29ce484222325, numbers, sizeof numbers), m->spec, m->spec_len);
}

static const char *exec_is_invalid(const struct mon_exec *m, const char **ret_param)
{
    bool entry = (m->flags & MON_EXEC_ENTRY) != 0;

    *ret_param = "exec_id";
    if (!exec_id_is_valid(m->exec_id))
        return "an exec id is 1 to 63 characters of [A-Za-z0-9._-], the first alphanumeric";
    if (entry != (strcmp(m->exec_id, ENTRY_EXEC_ID) == 0))
        return "the id 'entry' is the entry point's and no other's";
    *ret_param = "flags";
    if ((m->flags & ~EXEC_FLAGS) != 0)
        return "an exec flag is not known";
    return NULL;
}

static int on_exec(unsigned peer, const struct chan_msg *msg)
{
    struct mon_exec m;
    const char *param;
    enum err_code code = ERR_INTERNAL;

    if (mon_exec_decode(&m, msg->data, msg->len) < 0)
        return -1;
    if (m.container[0] != '\0') {
        waiter_error(peer, msg->tag, ERR_NOT_FOUND, "container", "no such container in the sandbox");
        return 0;
    }
    const char *bad = exec_is_invalid(&m, &param);
    if (bad != NULL) {
        waiter_error(peer, msg->tag, ERR_INVALID, param, bad);
        return 0;
    }
    uint64_t hash = hash_of(&m);
    struct exec *e = exec_by_id(m.exec_id);
    if (e != NULL && e->hash != hash) {
        waiter_error(peer, msg->tag, ERR_CONFLICT, "exec_id", "the exec id is in use for another command");
        return 0;
    }
    if (e == NULL && is_ending()) {
        waiter_error(peer, msg->tag, ERR_GONE, NULL, "the sandbox is ending or has ended");
        return 0;
    }
    bool created = e == NULL;
    if (created)
        e = exec_new(&m, hash, &code);
    if (e == NULL) {
        waiter_error(peer, msg->tag, code, NULL,
                     code == ERR_LIMIT ? "too many execs are running in the sandbox"
                                       : "no descriptors or pipes are left for another exec");
        return 0;
    }
    struct waiter *w = waiter_new(peer, msg->tag, FOR_EXEC, e);
    w->created = created;
    w->lazy = m.lazy;
    if (m.lazy)
        w->until_ms = wait_until(MON_LAZY_MS);
    waiter_try(w);
    return 0;
}

static int on_read(unsigned peer, const struct chan_msg *msg)
{
    struct mon_read m;

    if (mon_read_decode(&m, msg->data, msg->len) < 0)
        return -1;
    struct exec *e = find(peer, msg->tag, m.exec_id, m.container);
    if (e == NULL)
        return 0;
    int which = m.stream == 2 ? ERR : OUT;
    if (m.offset > e->s[which].total) {
        waiter_error(peer, msg->tag, ERR_RANGE, "offset", "the stream has not had that many bytes");
        return 0;
    }
    struct waiter *w = waiter_new(peer, msg->tag, FOR_READ, e);
    w->stream = (uint8_t)which;
    w->offset = m.offset;
    w->max = m.max < LIMIT_READ_CHUNK ? m.max : LIMIT_READ_CHUNK;
    w->file_ok = m.file_ok;
    w->lazy = m.lazy;
    w->until_ms = wait_until(m.wait_ms);
    waiter_try(w);
    return 0;
}

static int on_stdin(unsigned peer, const struct chan_msg *msg)
{
    struct mon_stdin m;

    if (mon_stdin_decode(&m, msg->data, msg->len) < 0)
        return -1;
    struct exec *e = find(peer, msg->tag, m.exec_id, m.container);
    if (e == NULL)
        return 0;
    if (!e->r.stdin_closed && m.len > 0 && m.offset > e->r.stdin_taken) {
        waiter_error(peer, msg->tag, ERR_RANGE, "offset", "bytes before this offset are missing");
        return 0;
    }
    if (!input_has_room(e)) {
        waiter_error(peer, msg->tag, ERR_CAPACITY, NULL, "too many execs have unread stdin");
        return 0;
    }
    input_write(e, &m);
    waiter_try(waiter_new(peer, msg->tag, FOR_STDIN, e));
    return 0;
}

static int on_stdin_status(unsigned peer, const struct chan_msg *msg)
{
    struct mon_ref m;

    if (mon_ref_decode(&m, msg->data, msg->len) < 0)
        return -1;
    struct exec *e = find(peer, msg->tag, m.exec_id, m.container);
    if (e != NULL)
        waiter_try(waiter_new(peer, msg->tag, FOR_STDIN_NOW, e));
    return 0;
}

static int on_wait(unsigned peer, const struct chan_msg *msg)
{
    struct mon_wait m;

    if (mon_wait_decode(&m, msg->data, msg->len) < 0)
        return -1;
    struct exec *e = find(peer, msg->tag, m.exec_id, m.container);
    if (e == NULL)
        return 0;
    struct waiter *w = waiter_new(peer, msg->tag, FOR_WAIT, e);
    w->until_ms = wait_until(m.wait_ms);
    waiter_try(w);
    return 0;
}

static int on_list(unsigned peer, const struct chan_msg *msg)
{
    struct mon_list m;

    if (mon_list_decode(&m, msg->data, msg->len) < 0)
        return -1;
    struct waiter *w = waiter_new(peer, msg->tag, FOR_LIST, NULL);
    w->max = m.first;
    waiter_try(w);
    return 0;
}

static int on_signal(unsigned peer, const struct chan_msg *msg)
{
    struct mon_signal m;
    struct exec *e = NULL;

    if (mon_signal_decode(&m, msg->data, msg->len) < 0)
        return -1;
    if (m.signal == 0) {
        waiter_error(peer, msg->tag, ERR_INVALID, "signal", "a signal is 1 to 64");
        return 0;
    }
    if (m.exec_id[0] != '\0') {
        e = find(peer, msg->tag, m.exec_id, m.container);
        if (e == NULL)
            return 0;
        if (!e->live) {
            waiter_error(peer, msg->tag, ERR_CONFLICT, "exec_id", "the exec has ended");
            return 0;
        }
    }
    int r = exec_signal(e, m.signal, e == NULL ? INIT_SIG_ALL : (enum init_signal_scope)m.scope);
    if (r < 0)
        waiter_error(peer, msg->tag, ERR_UNAVAILABLE, NULL, "init does not take the signal now");
    else
        answer_ok(peer, msg->tag);
    return 0;
}

static int on_resize(unsigned peer, const struct chan_msg *msg)
{
    struct mon_resize m;

    if (mon_resize_decode(&m, msg->data, msg->len) < 0)
        return -1;
    struct exec *e = find(peer, msg->tag, m.exec_id, m.container);
    if (e == NULL)
        return 0;
    if (!e->tty || e->s[OUT].fd < 0) {
        waiter_error(peer, msg->tag, ERR_CONFLICT, "exec_id",
                     e->tty ? "the exec has ended" : "the exec has no terminal");
        return 0;
    }
    struct winsize size = {.ws_row = m.rows, .ws_col = m.cols};
    if (ioctl(e->s[OUT].fd, TIOCSWINSZ, &size) < 0)
        waiter_error(peer, msg->tag, ERR_INTERNAL, NULL, "the terminal refused the size");
    else
        answer_ok(peer, msg->tag);
    return 0;
}

static int on_kill(unsigned peer, const struct chan_msg *msg)
{
    struct mon_kill m;

    if (mon_kill_decode(&m, msg->data, msg->len) < 0)
        return -1;
    struct exec *e = find(peer, msg->tag, m.exec_id, m.container);
    if (e == NULL)
        return 0;
    exec_kill(e, m.reason != END_NONE ? (enum end_reason)m.reason : END_KILLED);
    answer_ok(peer, msg->tag);
    return 0;
}

static int on_forget(unsigned peer, const struct chan_msg *msg)
{
    struct mon_ref m;

    if (mon_ref_decode(&m, msg->data, msg->len) < 0)
        return -1;
    struct exec *e = find(peer, msg->tag, m.exec_id, m.container);
    if (e == NULL)
        return 0;
    if (e->live || e->entry) {
        waiter_error(peer, msg->tag, ERR_CONFLICT, "exec_id",
                     e->entry ? "the entry point cannot be forgotten" : "the exec is still running");
        return 0;
    }
    exec_forget(e);
    answer_ok(peer, msg->tag);
    return 0;
}

static int on_terminate(unsigned peer, const struct chan_msg *msg)
{
    struct mon_terminate m;

    if (mon_terminate_decode(&m, msg->data, msg->len) < 0)
        return -1;
    answer_ok(peer, msg->tag);
    ending_start(m.reason != END_NONE ? (enum end_reason)m.reason : END_TERMINATED, m.actor,
                 m.signal, m.grace_ms == UINT32_MAX ? mon.grace_ms : m.grace_ms);
    return 0;
}

static int on_status(unsigned peer, const struct chan_msg *msg)
{
    struct mon_status m;

    if (mon_status_decode(&m, msg->data, msg->len) < 0)
        return -1;
    struct waiter *w = waiter_new(peer, msg->tag, FOR_STATUS, NULL);
    w->until_ms = wait_until(m.wait_ms);
    waiter_try(w);
    return 0;
}

static int on_dial(unsigned peer, const struct chan_msg *msg)
{
    struct mon_dial m;

    if (mon_dial_decode(&m, msg->data, msg->len) < 0)
        return -1;
    if (m.container[0] != '\0') {
        waiter_error(peer, msg->tag, ERR_NOT_FOUND, "container", "no such container in the sandbox");
        return 0;
    }
    if (is_ending()) {
        waiter_error(peer, msg->tag, ERR_GONE, NULL, "the sandbox is ending or has ended");
        return 0;
    }
    int fd = dial(m.port);
    if (fd < 0) {
        waiter_error(peer, msg->tag, ERR_UNAVAILABLE, "port",
                     fd == -ECONNREFUSED ? "nothing listens on the port" : "the port cannot be connected to");
        return 0;
    }
    ending_activity("tunnel");
    struct waiter *w = waiter_new(peer, msg->tag, FOR_DIAL, NULL);
    w->fd = fd;
    waiter_try(w);
    return 0;
}

static int on_touch(unsigned peer, const struct chan_msg *msg)
{
    if (msg->len != 0)
        return -1;
    if (!is_ending())
        ending_activity("tunnel");
    answer_ok(peer, msg->tag);
    return 0;
}

static int on_network(unsigned peer, const struct chan_msg *msg)
{
    if (msg->len != 0)
        return -1;
    if (network_is_there())
        waiter_try(waiter_new(peer, msg->tag, FOR_NETWORK, NULL));
    else
        waiter_error(peer, msg->tag, ERR_UNSUPPORTED, "network", "the sandbox has no network");
    return 0;
}

static int on_update(unsigned peer, const struct chan_msg *msg)
{
    struct mon_update m;

    if (mon_update_decode(&m, msg->data, msg->len) < 0)
        return -1;
    if (is_ending()) {
        waiter_error(peer, msg->tag, ERR_GONE, NULL, "the sandbox is ending or has ended");
        return 0;
    }
    if (m.set_deadline && m.deadline_ms < 0) {
        waiter_error(peer, msg->tag, ERR_INVALID, "deadline_ms", "a deadline cannot be negative");
        return 0;
    }
    if (m.set_deadline)
        ending_set_deadline(m.deadline_ms);
    if (m.set_idle)
        ending_set_idle(m.idle_ms);
    if (m.set_cpus)
        figures_set_cpus(m.cpus);
    /* On disk before the answer: whoever starts after a crash finds what was promised. */
    files_status();
    answer_ok(peer, msg->tag);
    return 0;
}

int request_handle(unsigned peer, const struct chan_msg *m)
{
    static int (*const handlers[])(unsigned peer, const struct chan_msg *m) = {
        [MON_EXEC] = on_exec,
        [MON_READ] = on_read,
        [MON_STDIN] = on_stdin,
        [MON_STDIN_STATUS] = on_stdin_status,
        [MON_WAIT] = on_wait,
        [MON_LIST] = on_list,
        [MON_SIGNAL] = on_signal,
        [MON_RESIZE] = on_resize,
        [MON_KILL] = on_kill,
        [MON_FORGET] = on_forget,
        [MON_TERMINATE] = on_terminate,
        [MON_STATUS] = on_status,
        [MON_UPDATE] = on_update,
        [MON_DIAL] = on_dial,
        [MON_TOUCH] = on_touch,
        [MON_NETWORK] = on_network,
    };

    if (m->type >= sizeof handlers / sizeof handlers[0] || handlers[m->type] == NULL) {
        waiter_error(peer, m->tag, ERR_UNSUPPORTED, NULL, "this monitor does not know the request");
        return 0;
    }
    return handlers[m->type](peer, m);
}
