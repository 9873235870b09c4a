/*
 * plant.c - canaries of the control that belong to its namespaces rather than to a process
 */
#include "plant.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "escape.h"
#include "groups.h"

/* A device that carries the name; the descriptor holds it. A kernel without TUN has bridges. */
static void interface(const char *name)
{
    struct ifreq r = {.ifr_flags = 1};
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

    memcpy(r.ifr_name, name, CANARY_SIZE);
    if (fd >= 0 && ioctl(fd, 0x400454ca /* TUNSETIFF */, &r) == 0 && ioctl(fd, 0x400454cb /* TUNSETPERSIST */, 1) == 0)
        return;
    (void)ioctl(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), 0x89a0 /* SIOCBRADDBR */, name);
}

int plant_around(const char *token)
{
    char name[CANARY_SIZE];

    canary(name, PLACE_HOST_NAME, token);
    if (sethostname(name, strlen(name)) < 0)
        return -1;
    canary(name, PLACE_MOUNT_SOURCE, token);
    if (mount(name, "/mnt", "tmpfs", 0, NULL) < 0)
        return -1;
    canary(name, PLACE_INTERFACE, token);
    interface(name);
    /* The group tells its name in two places: to its members, and in the tree. */
    canary(name, PLACE_GROUP_NAME, token);
    (void)groups_enter(name);
    canary(name, PLACE_GROUP_TREE, token);
    (void)groups_make(name);
    canary(name, PLACE_INHERITED_ENV, token);
    (void)setenv("QSE_INHERITED", name, 1);
    canary(name, PLACE_INHERITED_FD, token);
    int fd = memfd_create("inherited", 0);
    (void)!write(fd, name, strlen(name));
    return 0;
}
