/*
 * signals.h - signals by name or number, as the API and the command line write them
 */
#ifndef QS_API_SHARED_SIGNALS_H
#define QS_API_SHARED_SIGNALS_H

#define SIGNAL_MAX 64

/* "TERM", "SIGTERM", "sigterm", "15", "RTMIN+3"; the number, or 0 for anything else. */
int signal_parse(const char *text);

#endif
