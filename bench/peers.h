/*
 * peers.h - running other programs for comparison, from C and without a shell
 */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

/* Milliseconds of posix_spawn .. wait4 of argv (searched in PATH), output discarded; negative if it did not exit 0. */
double peer_time(const char *const *argv);
/* The same, until `expect` has been read from its stdout and it has exited 0. */
double peer_time_output(const char *const *argv, const char *expect);
/* Runs argv to its end without timing it; what it leaves running has no pipe of ours. 0 or -1. */
int peer_run(const char *const *argv);
/* vfork + exec + wait of a program by absolute path: the floor of "run a command". */
double peer_vfork_exec(const char *path);

#endif
