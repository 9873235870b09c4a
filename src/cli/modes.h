/*
 * modes.h - what a program has switched on in the terminal, learned from its output, to be switched off at the end
 *
 * Follows private modes (ESC [ ? n h and l), the keypad and questions to the terminal, whose answers must not become
 * typing into the operator's shell. Used by term.c; a byte at a time, sequences may be cut anywhere.
 */
#ifndef QS_CLI_MODES_H
#define QS_CLI_MODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define MODES_MAX 64

struct modes {
    uint8_t state;
    uint16_t params[16];
    size_t nparams;
    struct {
        uint16_t number;
        bool on;
    } seen[MODES_MAX];          /* private modes and how the program left them */
    size_t nseen;
    bool keypad;                /* application keypad on */
    bool style;                 /* colours or attributes may be on */
    bool asked;                 /* the terminal may still be answering */
};

void modes_feed(struct modes *m, const void *p, size_t n);
/* Appends what puts the terminal back; nothing for a program that touched nothing. */
void modes_undo(const struct modes *m, struct buf *out);

#endif
