/* What is to be told when the step's slurmstepd, which alone writes slurmd's log, has ended
 * already: it waits in the spool's file `.jobs/words`, a line each, for the next step on the node.
 * Syslog has it at once. */
#ifndef LOGSHIPPER_WORDS_H
#define LOGSHIPPER_WORDS_H

/* Keeps a line. Where it can't be kept, or too many wait, it is in syslog alone. */
void words_keep(int spool, const char *line);

/* Takes out the lines that wait. */
void words_take(int spool, void (*log)(const char *text));

#endif
