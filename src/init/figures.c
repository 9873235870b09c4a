/*
 * figures.c - what a sandbox sees of the machine: files that its monitor writes, over those of the kernel
 *
 * They lie beside the device nodes, on the keeper's tmpfs (keeper/objects.c). Those of /proc are bound while the slot is
 * prepared; those that list processors only at SETUP, because most sandboxes may use all there are.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>

#include "init/init.h"
#include "init/kernel.h"
#include "sys/fd.h"

static const char *const names[] = {"meminfo", "stat", "loadavg"};
static const struct {
    const char *name, *target;
} cpu_files[FIGURES_CPU] = {
    {"cpuinfo", "proc/cpuinfo"},
    {"online", "sys/devices/system/cpu/online"},
};

int figures_bind(struct init *in, struct fault *f)
{
    char from[32], to[32];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(from, sizeof from, "nodes/%s", names[i]);
        snprintf(to, sizeof to, "proc/%s", names[i]);
        if (cover(from, to, f) < 0)
            return -1;
    }
    for (int i = 0; i < FIGURES_CPU; i++) {
        snprintf(from, sizeof from, "nodes/%s", cpu_files[i].name);
        in->cpu_files[i] = k_open_tree(AT_FDCWD, from, OPEN_TREE_CLONE);
        if (in->cpu_files[i] < 0 ||
            k_mount_setattr(in->cpu_files[i], "", AT_EMPTY_PATH,
                            MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC) < 0)
            return fault_set(f, cpu_files[i].target);
    }
    return 0;
}

static bool is_set(const uint8_t *cpus)
{
    for (int i = 0; i < KEEPER_CPUS; i++)
        if (cpus[i] != 0)
            return true;
    return false;
}

void cpus_use(const uint8_t *cpus)
{
    /* A processor may have gone away meanwhile; then all go on anywhere. */
    if (is_set(cpus))
        (void)sched_setaffinity(0, KEEPER_CPUS, (const cpu_set_t *)(const void *)cpus);
}

int figures_of_cpus(struct init *in, const uint8_t *cpus, struct fault *f)
{
    cpus_use(cpus);
    for (int i = 0; i < FIGURES_CPU; i++) {
        auto_close int tree = take_fd(&in->cpu_files[i]);
        if (is_set(cpus) && access(cpu_files[i].target, F_OK) == 0 &&
            k_move_mount(tree, "", AT_FDCWD, cpu_files[i].target) < 0)
            return fault_set(f, cpu_files[i].target);
    }
    return 0;
}
