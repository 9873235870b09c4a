/*
 * term.h - the operator's terminal: raw while a command has it, as it was afterwards
 *
 * Used by attach.c. Whatever ends the program (but SIGKILL) runs term_restore: modes that the sandboxed program switched
 * on are switched off, and everything that the terminal still has to say in answer to it is thrown away, so that none
 * of it is typed into the shell.
 */
#ifndef QS_CLI_TERM_H
#define QS_CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Stdin's terminal; nothing when stdin is none. Without `input` only output is passed as it is (the sandbox's terminal has
 * made lines of it already), and keys like Ctrl-C mean what they mean here. */
int term_raw(bool input, struct err *e);
void term_restore(void);            /* again and again is fine */
/* Output of the sandboxed program on its way to the terminal. */
void term_output(const void *p, size_t n);
bool term_size(unsigned *ret_rows, unsigned *ret_cols);

#endif
