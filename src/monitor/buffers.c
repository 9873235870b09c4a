/*
 * buffers.c - the large buffers of the loop
 *
 * They are untouched pages until a large message passes; some seconds after the last one the pages are
 * given back, so that an idle monitor stays small.
 */
#include <sys/mman.h>

#include "monitor/monitor.h"

#define PAGE 4096
#define TRIM_AFTER_MS 2000

uint8_t tx_buffer[LIMIT_CHANNEL_MESSAGE] __attribute__((aligned(PAGE)));
uint8_t rx_buffer[LIMIT_CHANNEL_INLINE] __attribute__((aligned(PAGE)));
uint8_t io_buffer[64 * 1024] __attribute__((aligned(PAGE)));

static int64_t trim_ms = NEVER;

void buffers_used(size_t n)
{
    if (n <= PAGE)
        return;
    if (trim_ms == NEVER)
        due_at(mon.now_ms + TRIM_AFTER_MS);
    trim_ms = mon.now_ms + TRIM_AFTER_MS;
}

void buffers_run_timers(void)
{
    if (trim_ms == NEVER)
        return;
    if (mon.now_ms < trim_ms) {
        due_at(trim_ms);
        return;
    }
    trim_ms = NEVER;
    /* Failing to give memory back changes nothing else. */
    (void)madvise(tx_buffer + PAGE, sizeof tx_buffer - PAGE, MADV_DONTNEED);
    (void)madvise(rx_buffer + PAGE, sizeof rx_buffer - PAGE, MADV_DONTNEED);
    (void)madvise(io_buffer + PAGE, sizeof io_buffer - PAGE, MADV_DONTNEED);
}
