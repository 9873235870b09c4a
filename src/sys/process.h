/*
 * process.h - thin wrappers over clone3, pidfds and exec by descriptor
 *
 * Called by the keeper and its spawner. Leaf helpers: 0 (or a descriptor, or a pid) or -errno.
 */
#ifndef QS_SYS_PROCESS_H
#define QS_SYS_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

/*
 * Like fork(), with the CLONE_NEW* flags given: 0 in the child, its pid in the parent. The child
 * starts in the v2 cgroup of `cgroup_fd` if that is >= 0. *ret_pidfd is set in the parent unless NULL.
 * The caller must be single-threaded.
 */
pid_t process_clone(uint64_t flags, int cgroup_fd, int *ret_pidfd);

int process_pidfd(pid_t pid);
int process_pidfd_signal(int pidfd, int sig);

/* Start time in clock ticks since boot: with the pid it names a process for good. */
int process_start_time(pid_t pid, uint64_t *ret);

/* Replaces the program by the one open as `fd`; returns only on failure, -errno. */
int process_exec(int fd, char *const argv[], char *const envp[]);

/* Makes `from[i]` descriptor 3 + i for every i, and closes every other one above 2. 0 or -errno. */
int process_place_fds(const int *from, int n);

#endif
