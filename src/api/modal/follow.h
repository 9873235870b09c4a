/*
 * follow.h - live output of entry points, of one sandbox or of all of an app, as batches of log texts
 *
 * An entry id says what was sent, so a client that comes back with it gets everything else once. Of one stream it is the offset
 * of the next byte, or the number of the system stream's last line; else it is "<sandbox>:<stdout>:<stderr>:<system>;" for
 * each sandbox.
 */
#ifndef QS_API_MODAL_FOLLOW_H
#define QS_API_MODAL_FOLLOW_H

#include "api/modal/mcall.h"
#include "base/modal_ids.h"

#define FOLLOW_STDOUT 1u
#define FOLLOW_STDERR 2u
#define FOLLOW_SYSTEM 4u        /* what the network policy decided */

struct follow;

/* The call is the follow's from here on; it ends without `eof` when timeout_s is over. `entry` is where the client was. */
struct follow *follow_new(struct mcall *c, double timeout_s, bool is_one_stream, const char *entry);
/* Adds a sandbox; one that is there already stays as it is. */
void follow_add(struct follow *f, const char *id, enum modal_generation g, unsigned streams);
/* The client has seen some of its output, as its entry id says. */
bool follow_has_seen(const struct follow *f, const char *id);
/* No more will be added: the follow ends when all output was sent. `is_app`: as the end of an app. May end the call. */
void follow_close(struct follow *f, bool is_app);
/* Asks every second for more (follow_add) until it calls follow_close; ctx is the call. */
void follow_watch(struct follow *f, void (*look)(struct follow *f, struct mcall *c));

#endif
