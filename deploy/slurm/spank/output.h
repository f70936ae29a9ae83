/* The job's own stdout or stderr: gets every byte, unchanged, without ever blocking the other one.
 * The same as logshipper/relay/output.py. */
#ifndef LOGSHIPPER_OUTPUT_H
#define LOGSHIPPER_OUTPUT_H

#include "journal.h"

#include <stddef.h>
#include <sys/types.h>

struct output {
    int fd;
    struct entry *entry; /* where it is noted what goes out */
    enum intent trace;   /* how that can be told afterwards: INTENT_FILE, INTENT_STAGED or INTENT_BLIND */
    int stage[2];        /* INTENT_STAGED: our own pipe, from which the kernel moves bytes on */
    size_t staged;       /* bytes in it */
    int fault; /* errno of the first write that failed; 0 while all is well */
    int gone;  /* EPIPE, EIO: nobody reads it any more */
    enum {
        OUTPUT_WHOLE,   /* regular files and the like: a write takes all */
        OUTPUT_FREE,    /* a description of our own with O_NONBLOCK */
        OUTPUT_CAREFUL, /* inherited, and O_NONBLOCK would be everybody's: only after POLLOUT, 4 KiB at a time */
    } kind;
    int cut; /* several writers' lines stay whole in a pipe, as far as PIPE_BUF goes */
};

/* Gives pipes and ptys a description of their own that never blocks; others share the offset and
 * must. To be called as root, as a task's pipe belongs to slurmstepd: only fds that may be written
 * are opened again, for writing. */
void output_own_description(int *fd);

/* Owns fd from here on. */
void output_init(struct output *output, int fd, struct entry *entry);
void output_close(struct output *output);

/* Writes what can be written now of what is next in the journal; returns how much of it is dealt
 * with. A full disk can't be told to the job any more: what can't be written is left out, `fault`
 * says so. */
size_t output_write(struct output *output, const unsigned char *data, size_t size);

/* Whether two fds lead to one file, pipe or terminal: then their lines mustn't tear each other. */
int same_file(int one, int other);

#endif
