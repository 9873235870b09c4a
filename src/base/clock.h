/*
 * clock.h - the two clocks we use
 *
 * Deadlines are absolute wall-clock milliseconds in records (they survive daemons) and
 * CLOCK_BOOTTIME milliseconds in timers (a step of the wall clock does not move them).
 */
#ifndef QS_BASE_CLOCK_H
#define QS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ms_(clockid_t id)
{
    struct timespec ts;

    (void)clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static inline int64_t clock_wall_ms(void)
{
    return clock_ms_(CLOCK_REALTIME);
}

static inline int64_t clock_boot_ms(void)
{
    return clock_ms_(CLOCK_BOOTTIME);
}

static inline int64_t clock_wall_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

#endif
