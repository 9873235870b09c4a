/*
 * channel.h - SOCK_SEQPACKET messages with descriptors
 *
 * One packet is a 12-byte header {u16 type, u16 version, u32 tag, u32 length} and a payload. A payload
 * that would make the packet larger than LIMIT_CHANNEL_INLINE travels in a sealed memfd that is the
 * first descriptor of the packet (header flag in the top bit of `type`), up to LIMIT_CHANNEL_MESSAGE.
 * `tag` matches replies to requests; the sender of a request chooses it, 0 means "no reply".
 *
 * Trust: CHAN_NO_FDS is for the side that reads from a sandbox. It receives without a control buffer,
 * so the kernel drops any descriptor sent, and refuses memfd payloads.
 */
#ifndef QS_IPC_CHANNEL_H
#define QS_IPC_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

#define CHAN_VERSION 1
#define CHAN_HEADER 12

enum { CHAN_NO_FDS = 1 };

struct chan_msg {
    uint16_t type;
    uint16_t version;
    uint32_t tag;
    size_t len;
    const uint8_t *data;                /* payload; borrowed until chan_msg_done */
    int fds[LIMIT_CHANNEL_FDS];         /* owned until taken with take_fd */
    int nfds;
    void *map_;                         /* mapping of a memfd payload */
};

/* 0, -EAGAIN (non-blocking socket is full), or another -errno. Never partial. */
int chan_send(int fd, uint16_t type, uint32_t tag, const void *data, size_t len, const int *fds, int nfds);

/*
 * Receives one message into *m, whose payload lives in `space` (of at least LIMIT_CHANNEL_INLINE bytes)
 * or in a mapping. 1 = a message, 0 = end of file, -EAGAIN, -EBADMSG (malformed; the channel should be
 * closed), or another -errno.
 */
int chan_recv(int fd, void *space, size_t size, unsigned flags, struct chan_msg *m);
void chan_msg_done(struct chan_msg *m); /* unmaps, closes descriptors that were not taken */

int chan_pair(int ret[2]);                                     /* non-blocking, cloexec */
int chan_listen(const char *path, unsigned mode, int *ret_fd); /* removes a stale socket first */
int chan_connect(const char *path, int *ret_fd);               /* non-blocking, cloexec */
int chan_peer(int fd, uint32_t *ret_uid, int32_t *ret_pid);    /* SO_PEERCRED */

#endif
