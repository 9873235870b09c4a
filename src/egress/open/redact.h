/*
 * redact.h - blackens words in a stream of bytes, also where they are cut in two
 *
 * Each byte of a word becomes '*', so lengths stay what they were. What may be the begin of a word waits for more, but over
 * a pause only if it is the first half of one and REDACT_HINT bytes: who can have bytes of its own sent back would otherwise
 * learn from what waits whether they begin a word, one byte after the other. So of a word that comes in pieces less than
 * that may be seen.
 */
#ifndef QS_EGRESS_OPEN_REDACT_H
#define QS_EGRESS_OPEN_REDACT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define REDACT_WORDS 64
#define REDACT_SHORTEST 6           /* shorter ones would blacken what is no secret */
#define REDACT_HINT 8               /* more than can be guessed at once */

struct redact {
    size_t n;
    bool is_full;               /* there was one too many */
    char *words[REDACT_WORDS];      /* owned */
    struct buf held, black;             /* bytes that may begin a word, and for each whether it is within another */
    size_t shown;                       /* of these, the first, have gone on already */
};

void redact_init(struct redact *r);
void redact_done(struct redact *r);
void redact_word(struct redact *r, const char *word);
/* What may go on is appended to *out; redact_pause once nothing more is here. */
void redact_feed(struct redact *r, const void *p, size_t n, struct buf *out);
void redact_pause(struct redact *r, struct buf *out);
void redact_end(struct redact *r, struct buf *out);
/* All at once, in place. */
void redact_text(const struct redact *r, char *p, size_t n);

#endif
