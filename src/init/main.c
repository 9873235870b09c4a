/*
 * main.c - quicksand-init: PID 1 of a sandbox, and the file helper under another name
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "init/fs/fs.h"
#include "init/init.h"

static void ready_reply(struct init *in, const struct fault *f)
{
    uint8_t out[128];
    struct init_ready r = {.error = f->error};

    snprintf(r.step, sizeof r.step, "%s", f->step);
    reply(in, INIT_READY, out, init_ready_encode(&r, out, sizeof out));
}

/* Waits for SETUP; without it there is nothing to be. */
static void setup_receive(struct init *in, struct fault *f)
{
    struct chan_msg m;
    struct init_setup s;
    int r;

    for (;;) {
        r = chan_recv(in->channel, in->space, sizeof in->space, 0, &m);
        if (r != -EAGAIN)
            break;
        struct pollfd pf = {.fd = in->channel, .events = POLLIN};
        (void)poll(&pf, 1, -1);
    }
    if (r == 0)
        _exit(0);
    if (r < 0 || m.type != INIT_SETUP || init_setup_decode(&s, m.data, m.len) < 0) {
        errno = EBADMSG;
        (void)fault_set(f, "setup message");
        return;
    }
    (void)setup_run(in, &s, m.fds, m.nfds, f);
    chan_msg_done(&m);
}

static int init_main(void)
{
    static struct init in;              /* zero, so that its buffer takes no room in the program */
    struct fault f = {0};

    in.channel = INIT_FD_CHANNEL;
    in.self = in.proc = in.null = in.signals = in.nesting = in.staging = -1;
    for (int i = 0; i < ETC_MAX; i++)
        in.etc[i] = -1;
    if (slot_prepare(&in, &f) == 0)
        setup_receive(&in, &f);
    ready_reply(&in, &f);
    if (f.error != 0)
        return 1;
    serve(&in);
}

int main(int argc, char **argv)
{
    static const char helper[] = "modal-sandbox-fs-tools";
    size_t n = argc > 0 ? strlen(argv[0]) : 0;

    if (n >= sizeof helper - 1 && strcmp(argv[0] + n - (sizeof helper - 1), helper) == 0)
        return fs_main(argc, argv);
    if (getpid() == 1)
        return init_main();
    dprintf(2, "quicksand-init is started by quicksandd\n");
    return 2;
}
