/* What the keeper says, which slurmstepd writes to the node's log when it next listens: that may be
 * never, as it listens for the last time before it lets go of the socket. What it hadn't read by
 * then goes to `.jobs/words` (words.h). */
#ifndef LOGSHIPPER_LAST_WORDS_H
#define LOGSHIPPER_LAST_WORDS_H

#include <stdint.h>

/* Says a line to slurmstepd; socket: -1 where it is gone. Where it can't be said, the spool (-1:
 * none yet) keeps it. */
void last_words_say(int socket, int spool, const char *line);

/* Tells slurmstepd that all of a task's output is delivered. */
void last_words_drained(int socket, int spool, uint32_t task);

/* slurmstepd is gone, and hasn't read all that was sent to it: ECONNRESET, which the kernel tells
 * once. */
void last_words_unread(int spool);

#endif
