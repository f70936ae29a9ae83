/* The new stdout and stderr of a task: ptys, or pipes. */
#ifndef LOGSHIPPER_ENDS_H
#define LOGSHIPPER_ENDS_H

struct ends {
    int masters[2], slaves[2]; /* by stream; -1: none */
    int tty;
};

/* Makes both; raw (no echo, nothing translated), of a size. Pipes where `tty` is 0, or no pty is
 * available. They close on exec. Returns 0, or -1 (errno), nothing being left open. */
int ends_make(struct ends *ends, int tty, unsigned columns, unsigned rows);

void ends_close(struct ends *ends);

#endif
