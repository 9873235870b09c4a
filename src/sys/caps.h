/*
 * caps.h - lowering the capabilities of the calling process for good
 */
#ifndef QS_SYS_CAPS_H
#define QS_SYS_CAPS_H

#include <stdint.h>

#define CAP_BIT(cap) (1ULL << (cap))

/*
 * Keeps at most the capabilities in `keep`: bounding and ambient sets are emptied of the others, and
 * permitted and effective lowered; inheritable is empty. Needs CAP_SETPCAP. 0 or -errno.
 */
int caps_limit(uint64_t keep);

/* All that is permitted is effective again, after a change of the effective user has taken it away. 0 or -errno. */
int caps_raise(void);

/* Becomes uid:gid with no other group and no capability, and can gain none by executing. 0 or -errno. */
int caps_become_user(uint32_t uid, uint32_t gid);

/*
 * The same with another real uid, which the program may use for files (setfsuid) and for nothing else. What is executed sets
 * no_new_privs itself: kernels such as 6.1 take an exec with a real uid beside the effective one for that of a setuid
 * program, and under no_new_privs let the effective uid go (security/commoncap.c, cap_bprm_creds_from_file).
 */
int caps_become_user_as(uint32_t real_uid, uint32_t uid, uint32_t gid);

#endif
