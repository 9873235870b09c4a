/*
 * victim.h - where the victim can be met
 */
#ifndef QS_ESCAPE_VICTIM_H
#define QS_ESCAPE_VICTIM_H

#include <sys/socket.h>
#include <sys/un.h>

/* The address of its abstract socket ("stream", "dgram"); the length. */
socklen_t victim_abstract(struct sockaddr_un *a, const char *token, const char *kind);
/* Its port on the loopback device, TCP and UDP. */
unsigned victim_port(const char *token);

#endif
