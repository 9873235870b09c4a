/*
 * egress_flow_test.c - dialling and relaying, without the decisions before it: those of flow.c are stood in for here
 *
 * Built with a HALF_MS of a fraction of a second.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "egress/egress.h"
#include "egress/open/open.h"
#include "sys/fd.h"

static struct egress egress;
static struct box box;
static struct flow flow;
static bool connected, is_reset, is_freed;
static char told_status[64], told_why[128];

/* --- in the place of flow.c */

void flow_want(struct flow *f, unsigned in, unsigned out)
{
    if (f->in_io != NULL)
        loop_io_set(f->in_io, in);
    if (f->out_io != NULL)
        loop_io_set(f->out_io, out);
}

void flow_timer(struct flow *f, uint64_t ms, loop_timer_cb cb)
{
    loop_timer_free(f->timer);
    f->timer = loop_timer_new(egress.loop, cb, f);
    loop_timer_set(f->timer, ms);
}

void flow_failed(struct flow *f, const char *status, const char *why)
{
    (void)snprintf(told_status, sizeof told_status, "%s", status);
    (void)snprintf(told_why, sizeof told_why, "%s", why);
    loop_stop(egress.loop);
}

static void end(struct flow *f)
{
    loop_io_free(take_ptr(&f->in_io));
    loop_io_free(take_ptr(&f->out_io));
    loop_timer_free(take_ptr(&f->timer));
    fd_close(&f->in);
    fd_close(&f->out);
    free(take_ptr(&f->up.rest));
    free(take_ptr(&f->down.rest));
}

void flow_reset(struct flow *f)
{
    end(f);
    is_reset = true;
    loop_stop(egress.loop);
}

void flow_free(struct flow *f)
{
    end(f);
    is_freed = true;
    loop_stop(egress.loop);
}

void opened_start(struct flow *f)
{
    fail_msg("opened, which was not asked for");
}

void opened_go_on(struct flow *f)
{
    opened_start(f);
}

void flow_refuse(struct flow *f, enum egress_reason reason, const struct address *to, int rule)
{
    fail();
}

/* --- places to go */

static struct address four(uint8_t last)
{
    return (struct address){{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = last}};
}

static int listen_at(uint8_t last, uint16_t *port, int backlog)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(*port), .sin_addr.s_addr = htonl(0x7f000000u | last)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

/* Takes no further connection: what is sent to it is lost. */
static int silent_at(uint8_t last, uint16_t port, int fill[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x7f000000u | last)};
    int fd = listen_at(last, &port, 0);

    for (int i = 0; i < 2; i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fill[i], (struct sockaddr *)&a, sizeof a);
    }
    return fd;
}

static int client_of(struct flow *f)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    f->in = ends[0];
    return ends[1];
}

static size_t descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    size_t n = 0;

    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

static int setup(void **state)
{
    egress = (struct egress){.loop = loop_new()};
    box = (struct box){.egress = &egress};
    flow = (struct flow){.box = &box, .in = -1, .out = -1};
    connected = is_reset = is_freed = false;
    told_status[0] = told_why[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    dial_cancel(&flow);
    end(&flow);
    loop_free(egress.loop);
    return 0;
}

/* Whether the relay began is seen at its io: the loop ends soon after. */
static void on_look(void *arg)
{
    connected = flow.state == FLOW_RELAY;
    if (connected || told_status[0] != '\0')
        loop_stop(egress.loop);
    else
        loop_timer_set(*(struct loop_timer **)arg, 20);
}

static void dial(uint16_t port, size_t n, const struct address *addresses)
{
    struct loop_timer *look = NULL;

    flow.port = port;
    flow.naddresses = n;
    memcpy(flow.addresses, addresses, n * sizeof *addresses);
    look = loop_timer_new(egress.loop, on_look, &look);
    loop_timer_set(look, 20);
    dial_start(&flow);
    assert_int_equal(loop_run(egress.loop), 0);
    loop_timer_free(look);
}

static bool dialled(uint8_t last)
{
    struct address a = four(last);

    return connected && memcmp(&flow.dialled, &a, sizeof a) == 0;
}

static void the_next_where_one_refuses(void **state)
{
    uint16_t port = 0;
    auto_close int there = listen_at(3, &port, 8);
    auto_close int client = client_of(&flow);

    dial(port, 3, (struct address[]){four(1), four(2), four(3)});
    assert_true(dialled(3));
    assert_null(flow.dial);
}

static void the_next_where_one_is_silent(void **state)
{
    uint16_t port = 0;
    int fill[2];
    auto_close int there = listen_at(3, &port, 8);
    auto_close int silent = silent_at(2, port, fill);
    auto_close int client = client_of(&flow);
    size_t before = descriptors();

    int64_t start = clock_boot_ms();
    dial(port, 2, (struct address[]){four(2), four(3)});
    assert_true(dialled(3));
    assert_true(clock_boot_ms() - start < 9000);        /* before the silent one is given up */
    assert_int_equal(descriptors(), before + 1);        /* and nothing is left of that */
    fd_close(&fill[0]);
    fd_close(&fill[1]);
}

static void all_refuse(void **state)
{
    uint16_t port = 0;
    int there = listen_at(3, &port, 8);
    struct address none = {{[10] = 0xff, [11] = 0xff, [12] = 255, [13] = 255, [14] = 255, [15] = 255}};

    fd_close(&there);
    size_t before = descriptors();
    dial(port, 3, (struct address[]){four(1), none, four(3)});
    assert_string_equal(told_status, "502 Bad Gateway");
    assert_non_null(strstr(told_why, "refused"));
    assert_null(flow.dial);
    end(&flow);
    assert_int_equal(descriptors(), before);
}

static void cancelled(void **state)
{
    uint16_t port = 0;
    int fill[2], there = listen_at(3, &port, 8);
    auto_close int silent = silent_at(2, port, fill);
    size_t before = descriptors();

    flow.port = port;
    flow.naddresses = 1;
    flow.addresses[0] = four(2);
    dial_start(&flow);
    assert_int_equal(descriptors(), before + 1);
    dial_cancel(&flow);
    assert_null(flow.dial);
    assert_int_equal(descriptors(), before);
    fd_close(&there);
    fd_close(&fill[0]);
    fd_close(&fill[1]);
}

/* Who is near is not waited for, and what the client has said meanwhile is there with the connection. */
static void near_at_once(void **state)
{
    char got[8];
    uint16_t port = 0;
    auto_close int there = listen_at(1, &port, 8);
    auto_close int client = client_of(&flow);

    flow.port = port;
    flow.naddresses = 1;
    flow.addresses[0] = four(1);
    assert_int_equal(write(client, "early", 5), 5);
    dial_start(&flow);
    assert_int_equal(flow.state, FLOW_RELAY);
    assert_null(flow.dial);
    auto_close int server = accept4(there, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(server >= 0);
    assert_int_equal(read(server, got, sizeof got), 5);
    assert_memory_equal(got, "early", 5);
}

/* One socket answers for all addresses: none says anything of the next. */
static void local_addresses(void **state)
{
    const struct address here4 = four(1), here6 = {{[15] = 1}}, nowhere = {{[10] = 0xff, [11] = 0xff, [12] = 240, [15] = 1}};

    assert_true(dial_is_local(&here4));
    bool has6 = dial_is_local(&here6);      /* not every machine has IPv6 */
    size_t before = descriptors();
    for (int i = 0; i < 50; i++) {
        assert_true(dial_is_local(&here4));
        assert_true(dial_has_way(&here4));
        assert_false(dial_is_local(&nowhere));
        assert_int_equal(dial_is_local(&here6), has6);
    }
    assert_int_equal(descriptors(), before);
}

/* --- one direction has ended */

struct drip {
    struct loop_timer *timer;
    int fd;
    unsigned left;
    bool ends;
};

static void on_drip(void *arg)
{
    struct drip *d = arg;

    if (d->left > 0) {
        assert_int_equal(write(d->fd, "x", 1), 1);
        d->left--;
        loop_timer_set(d->timer, HALF_MS / 3);
    } else if (d->ends) {
        fd_close(&d->fd);
    }
}

/* The client ends its direction; the server sends a byte now and then, `pieces` of them, and ends or stays silent. */
static void half(unsigned pieces, bool ends, int *ret_client)
{
    struct drip drip;
    int out[2];

    *ret_client = client_of(&flow);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, out), 0);
    flow.out = out[0];
    drip = (struct drip){.fd = out[1], .left = pieces, .ends = ends};
    drip.timer = loop_timer_new(egress.loop, on_drip, &drip);
    loop_timer_set(drip.timer, HALF_MS / 3);
    assert_int_equal(shutdown(*ret_client, SHUT_WR), 0);
    relay_start(&flow);
    assert_int_equal(loop_run(egress.loop), 0);
    loop_timer_free(drip.timer);
    fd_close(&drip.fd);
}

static void what_still_comes_comes(void **state)
{
    char got[100];
    auto_close int client = -1;

    half(8, true, &client);
    assert_true(is_freed);
    assert_false(is_reset);
    assert_int_equal(read(client, got, sizeof got), 8);
    assert_int_equal(read(client, got, sizeof got), 0);
}

static void silence_ends(void **state)
{
    auto_close int client = -1;

    half(1, false, &client);
    assert_true(is_reset);
}

/* --- bytes a second */

#define RATE 200000
#define BULK 100000

struct many {
    struct flow flows[4];
    int clients[4], servers[4];
    struct loop_timer *timer;
    size_t got[4];
};

static struct way *up_of(struct flow *f)
{
    return &f->up;
}

static struct way *down_of(struct flow *f)
{
    return &f->down;
}

/* What came out is read; the loop ends once all of it is there. */
static void on_read(void *arg)
{
    static char waste[65536];
    struct many *m = arg;
    size_t sum = 0;
    ssize_t n;

    for (size_t i = 0; i < array_len(m->flows); i++) {
        while ((n = read(m->clients[i], waste, sizeof waste)) > 0)
            m->got[i] += (size_t)n;
        sum += m->got[i];
    }
    if (sum == BULK * array_len(m->flows))
        loop_stop(egress.loop);
    else
        loop_timer_set(m->timer, 5);
}

/* Four servers say all they have at once: what may come in the time that it took comes, and to none of the four much sooner. */
static void a_second_has_so_many_bytes(void **state)
{
    static char bulk[BULK];
    struct many m = {0};
    const int room = 4 * BULK;

    box.up = (struct throttle){.loop = egress.loop, .way = up_of, .go_on = relay_go_on_up};
    box.down = (struct throttle){.loop = egress.loop, .way = down_of, .go_on = relay_go_on_down};
    throttle_set(&box.down, RATE * 8);
    int64_t start = clock_boot_ms();
    for (size_t i = 0; i < array_len(m.flows); i++) {
        int out[2];
        m.flows[i] = (struct flow){.box = &box};
        m.clients[i] = client_of(&m.flows[i]);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, out), 0);
        m.flows[i].out = out[0];
        m.servers[i] = out[1];
        assert_int_equal(setsockopt(out[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
        assert_int_equal(write(out[1], bulk, sizeof bulk), sizeof bulk);
        relay_start(&m.flows[i]);
    }
    m.timer = loop_timer_new(egress.loop, on_read, &m);
    loop_timer_set(m.timer, 300);
    assert_int_equal(loop_run(egress.loop), 0);
    assert_true(box.status.totals.received == BULK * array_len(m.flows));
    assert_true((double)BULK * array_len(m.flows) <= RATE * (double)(clock_boot_ms() + 1 - start) / 1000 + RATE / 4 + 4096);
    assert_null(box.down.first);
    assert_int_equal(box.down.waiting, 0);
    /* Another wait, which the end of the connection ends. */
    box.down.tokens = -1e9;
    assert_int_equal(throttle_room(&box.down, &m.flows[1], 100), 0);
    assert_int_equal(throttle_room(&box.down, &m.flows[2], 100), 0);
    assert_int_equal(box.down.waiting, 2);
    throttle_leave(&box.down, &m.flows[1]);
    assert_ptr_equal(box.down.first, &m.flows[2]);
    throttle_leave(&box.down, &m.flows[2]);
    throttle_leave(&box.down, &m.flows[3]);
    assert_null(box.down.first);
    assert_null(box.down.last);
    /* Datagrams take in advance, to a bound. */
    box.down.tokens = 0;
    assert_true(throttle_takes(&box.down, 1000000000));
    assert_false(throttle_takes(&box.down, 1));
    throttle_set(&box.down, 0);
    assert_true(throttle_takes(&box.down, 1));
    throttle_done(&box.down);
    for (size_t i = 0; i < array_len(m.flows); i++) {
        end(&m.flows[i]);
        fd_close(&m.clients[i]);
        fd_close(&m.servers[i]);
    }
    loop_timer_free(m.timer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_next_where_one_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(the_next_where_one_is_silent, setup, teardown),
        cmocka_unit_test_setup_teardown(all_refuse, setup, teardown),
        cmocka_unit_test_setup_teardown(cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(near_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(local_addresses, setup, teardown),
        cmocka_unit_test_setup_teardown(what_still_comes_comes, setup, teardown),
        cmocka_unit_test_setup_teardown(silence_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(a_second_has_so_many_bytes, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
