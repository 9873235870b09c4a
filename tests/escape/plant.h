/*
 * plant.h - canaries: strings that must not be met inside, by place
 *
 * "qsc-NN-XXXXXXXX", NN the place, X of the run's token; 15 bytes, so that one is the name of a process or an interface.
 * src/cli/selftest_canaries.c has the names of the places.
 */
#ifndef QS_ESCAPE_PLANT_H
#define QS_ESCAPE_PLANT_H

#define CANARY_SIZE 16

enum place {
    PLACE_ENVIRON = 1, PLACE_CMDLINE, PLACE_COMM, PLACE_MEMORY, PLACE_OPEN_FILE, PLACE_CWD, PLACE_MAPPED_NAME,
    PLACE_TMP_FILE, PLACE_SHM_FILE, PLACE_MQUEUE, PLACE_SYSV_SHM, PLACE_SYSV_MSG, PLACE_ABSTRACT_NAME,
    PLACE_ABSTRACT_BANNER, PLACE_TCP_BANNER, PLACE_UDP_ANSWER, PLACE_SOCKET_BANNER, PLACE_KEY, PLACE_HOST_NAME,
    PLACE_MOUNT_SOURCE, PLACE_GROUP_NAME, PLACE_INTERFACE, PLACE_TERMINAL, PLACE_PROCESS_ROOT, PLACE_INHERITED_ENV,
    PLACE_INHERITED_FD, PLACE_FETCHED_FD, PLACE_FDINFO, PLACE_FD_NAME, PLACE_GROUP_TREE, PLACE_LAST = PLACE_GROUP_TREE,
};

/* The canary of a place; `out` has CANARY_SIZE bytes. */
void canary(char *out, enum place place, const char *token);

/* Those that no process but the namespace carries: host name, mount source, group, interface, what is inherited. For the
 * control alone. 0 or -1. */
int plant_around(const char *token);

#endif
