/*
 * execs.c - the table of execs
 *
 * Finding, adding and forgetting; lists by age, hash chains by exec id and by sequence number. What
 * happens to an exec is in exec_life.c.
 */
#include <string.h>

#include "monitor/monitor.h"

#define BUCKETS 512

struct exec execs[EXECS_MAX];

static uint16_t by_id[BUCKETS], by_seq[BUCKETS];    /* index + 1 */
static uint16_t oldest, newest;
static uint16_t free_list;      /* through next_id; index + 1 */
static unsigned high;           /* never used from here on */
static uint32_t last_seq;
static uint32_t live, shown, known;

static unsigned id_bucket(const char *exec_id)
{
    uint32_t h = 2166136261u;

    for (; *exec_id != '\0'; exec_id++)
        h = (h ^ (uint8_t)*exec_id) * 16777619u;
    return h % BUCKETS;
}

unsigned exec_index(const struct exec *e)
{
    return (unsigned)(e - execs);
}

static struct exec *at(unsigned index_plus_1)
{
    return index_plus_1 == 0 ? NULL : &execs[index_plus_1 - 1];
}

struct exec *exec_by_index(unsigned index)
{
    return index < EXECS_MAX && execs[index].used ? &execs[index] : NULL;
}

struct exec *exec_by_id(const char *exec_id)
{
    struct exec *e = at(by_id[id_bucket(exec_id)]);

    while (e != NULL && strcmp(e->r.exec_id, exec_id) != 0)
        e = at(e->next_id);
    return e;
}

struct exec *exec_by_seq(uint32_t seq)
{
    struct exec *e = at(by_seq[seq % BUCKETS]);

    while (e != NULL && e->r.seq != seq)
        e = at(e->next_seq);
    return e;
}

struct exec *exec_oldest(void)
{
    return at(oldest);
}

struct exec *exec_newer(const struct exec *e)
{
    return at(e->newer);
}

uint32_t execs_live(void)
{
    return live;
}

uint32_t execs_shown(void)
{
    return shown;
}

/* The oldest ended one makes room; what it had printed goes with it. */
static bool forget_oldest(void)
{
    for (struct exec *e = exec_oldest(); e != NULL; e = exec_newer(e)) {
        if (!e->live && !e->entry) {
            exec_forget(e);
            return true;
        }
    }
    return false;
}

static struct exec *slot(void)
{
    if (known - live >= LIMIT_EXECS_KEPT)
        (void)forget_oldest();
    if (free_list == 0 && high == EXECS_MAX && !forget_oldest())
        return NULL;
    struct exec *e = at(free_list);
    if (e != NULL)
        free_list = e->next_id;
    else if (high < EXECS_MAX)
        e = &execs[high++];
    return e;       /* NULL: all that is forgotten is still being drained */
}

struct exec *exec_add(const char *exec_id)
{
    struct exec *e = live < LIMIT_EXECS_LIVE ? slot() : NULL;

    if (e == NULL)
        return NULL;
    *e = (struct exec){
        .used = true, .live = true, .inner = {-1, -1, -1}, .group_fd = -1, .group = -1,
        .stdin_fd = -1, .stdin_buffer = -1, .timer_ms = NEVER,
    };
    stream_init(&e->s[OUT]);
    stream_init(&e->s[ERR]);
    e->r.seq = ++last_seq;
    memcpy(e->r.exec_id, exec_id, strlen(exec_id) + 1);

    uint16_t self = (uint16_t)(exec_index(e) + 1);
    uint16_t *id = &by_id[id_bucket(exec_id)];
    uint16_t *seq = &by_seq[e->r.seq % BUCKETS];
    e->next_id = *id;
    *id = self;
    e->next_seq = *seq;
    *seq = self;
    e->older = newest;
    if (newest != 0)
        at(newest)->newer = self;
    else
        oldest = self;
    newest = self;
    known++;
    live++;
    return e;
}

void exec_shown(struct exec *e)
{
    if (!e->hidden)
        shown++;
}

void exec_not_live(struct exec *e)
{
    e->live = false;
    live--;
    if (!e->hidden)
        shown--;
}

static void unlink_from(uint16_t *link, const struct exec *e, bool seq_chain)
{
    while (at(*link) != e)
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): e is on both chains */
        link = seq_chain ? &at(*link)->next_seq : &at(*link)->next_id;
    *link = seq_chain ? e->next_seq : e->next_id;
}

void exec_unlist(struct exec *e)
{
    unlink_from(&by_id[id_bucket(e->r.exec_id)], e, false);
    unlink_from(&by_seq[e->r.seq % BUCKETS], e, true);
    if (e->older != 0)
        at(e->older)->newer = e->newer;
    else
        oldest = e->newer;
    if (e->newer != 0)
        at(e->newer)->older = e->older;
    else
        newest = e->older;
    known--;
    e->forgotten = true;
}

void exec_free(struct exec *e)
{
    e->used = false;
    e->next_id = free_list;
    free_list = (uint16_t)(exec_index(e) + 1);
}

void execs_run_timers(void)
{
    struct exec *newer;

    for (struct exec *e = exec_oldest(); e != NULL; e = newer) {
        newer = exec_newer(e);
        if (e->timer == TIMER_NONE)
            continue;
        if (mon.now_ms >= e->timer_ms)
            exec_on_timer(e);
        else
            due_at(e->timer_ms);
    }
}
