/*
 * cpus.c - which processors a sandbox runs on
 */
#include "keeper/cpus.h"

#include <sched.h>
#include <string.h>

#define MOST (KEEPER_CPUS * 8)

static uint16_t ours[MOST];             /* numbers of the processors that we may use */
static uint32_t users[MOST];            /* sandboxes on each, in the order of `ours` */
static uint32_t nours;

void cpus_init(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    nours = 0;
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return;                         /* more than a set holds: everybody runs anywhere */
    for (uint16_t i = 0; i < MOST && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            ours[nours++] = i;
}

static uint64_t load_from(uint32_t first, uint32_t count)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += users[(first + i) % nours];
    return sum;
}

void cpus_release(struct cpu_part *part)
{
    for (uint32_t i = 0; i < part->count; i++)
        users[(part->first + i) % nours]--;
    *part = (struct cpu_part){0};
}

void cpus_take(struct cpu_part *part, uint32_t cpu_milli)
{
    uint32_t count = (cpu_milli + 999) / 1000, best = 0;

    cpus_release(part);
    if (count == 0 || count >= nours)
        return;
    for (uint32_t first = 1; first < nours; first++)
        if (load_from(first, count) < load_from(best, count))
            best = first;
    for (uint32_t i = 0; i < count; i++)
        users[(best + i) % nours]++;
    *part = (struct cpu_part){(uint16_t)best, (uint16_t)count};
}

void cpus_set(const struct cpu_part *part, uint8_t ret[KEEPER_CPUS])
{
    memset(ret, 0, KEEPER_CPUS);
    for (uint32_t i = 0; i < part->count; i++) {
        uint16_t cpu = ours[(part->first + i) % nours];
        ret[cpu / 8] |= (uint8_t)(1 << cpu % 8);
    }
}
