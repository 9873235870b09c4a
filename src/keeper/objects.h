/*
 * objects.h - what sandboxes see of /dev and /sys and cannot make themselves
 *
 * One small tmpfs for all of them, so that it costs no superblock each and shows no name of the host's disks or
 * directories in their mountinfo. It is mounted in the spawner's mount namespace alone and goes with it; what
 * running sandboxes have bound stays.
 */
#ifndef QS_KEEPER_OBJECTS_H
#define QS_KEEPER_OBJECTS_H

#include <stdint.h>

#include "base/err.h"

/* Sets keeper.objects_fd, still detached, with the /sys tree in it. */
int objects_make(struct err *e);
/* In the spawner, which has a mount namespace of its own: mounts it there, so that it can be cloned. */
int objects_attach(void);
/* What the monitor writes and the sandbox sees in place of the kernel's files; in the order of the monitor's descriptors. */
#define FIGURES(X) X("meminfo") X("stat") X("loadavg") X("cpuinfo") X("online")
enum { OBJECTS_FIGURES = 5 };
/* In the builder: device nodes for one slot, owned by root of it, and files for figures, and a detached mount of them. */
int objects_dev(uint32_t slot, uint32_t owner, int *ret_mount, struct err *e);
/* In the builder, for the monitor: one of the figures' files, to write. Descriptor or -errno. */
int objects_figure(uint32_t slot, int which);
/* In the builder: a detached read-only mount of the /sys tree. */
int objects_sys(int *ret_mount, struct err *e);
/* In the keeper, when the slot is gone. */
void objects_forget(uint32_t slot);

#endif
