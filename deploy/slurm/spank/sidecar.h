/* The sidecar as the relay sees it: its process, the side pipe to it, its reports. Nothing of it
 * can hurt the job: a full side pipe slows the job (R28), but who takes nothing for stall_secs is
 * given up. As logshipper/relay/handover.py.
 *
 * The duplicates of the streams that it shall relay on when the relay dies wait for it in a socket
 * each, until then; when a stream ends the relay takes them back. So nobody who waits for the end
 * of the job's output waits for the sidecar: neither for Python's start, nor for one that hangs. */
#ifndef LOGSHIPPER_SIDECAR_H
#define LOGSHIPPER_SIDECAR_H

#include "modes.h"
#include "side_pipe.h"
#include "spool.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sidecar_plan {
    const char *python;
    const char *folder; /* the capture's directory */
    const char *name;   /* the job's */
    uint32_t task;      /* global rank */
    uint32_t limit_secs; /* of the job's time; 0 where that isn't known */
    const struct capture *capture;
    const unsigned char *content; /* of ~/.logoptin, or why it is refused */
    size_t content_size;
    bool refused, tty;
    pid_t cmd_pid;
    int cmd_pidfd; /* -1: the kernel has none */
    unsigned columns, rows;
    uint64_t started_ns;
    const struct modes *modes;
    int pipe[2]; /* the side pipe */
    int journal, stages[2]; /* what it needs to relay on; see journal.h */
    unsigned stall_secs;
};

struct sidecar {
    pid_t pid;  /* 0 once it was reaped */
    bool alive; /* it takes bytes */
    bool ready; /* Python runs, and has begun */
    bool done;  /* all that it was told is synced */
    int report; /* to read */
    int rest;   /* to see how much is unread once the pipe is closed */
    int hands[2][2]; /* by stream: where its duplicates are put, and where they are taken */
    bool waits;      /* the pipe was full when last looked at */
    bool paused;     /* so much waits that no stream is to be read */
    bool hurry;      /* the job has ended, and somebody waits for streams that we can't read for the sidecar's sake */
    unsigned stall_secs;
    int64_t looked_ns, still_ns; /* when progress was last looked for; how long there has been none */
    int64_t mourned_until_ns;    /* lost, its exit status not known yet; 0: not so */
    int unread;
    size_t said_size;
    char said[1024], last_words[256], trouble[512]; /* trouble: what a person should know, "" for nothing */
    struct side_pipe pipe;
};

/* As root, to whom it is then charged, not to the job's user: makes the side pipe of one of so many
 * tasks of a step. Returns 0, or -1 (errno). */
int sidecar_make_pipe(int ends[2], unsigned tasks);

/* Likewise as root: puts duplicates of both streams' fds where the sidecar finds them; fds on their
 * way count against what others of the sender's may send. Returns 0, or -1 (errno). */
int sidecar_offer(struct sidecar *sidecar, const int masters[2], const int outs[2]);

/* Forks it; the plan's pipe is taken over. Returns 0, or -1 (errno) where that can't be done.
 * Reports tell whether Python could be run. */
int sidecar_start(struct sidecar *sidecar, const struct sidecar_plan *plan);

/* Takes the duplicates of a stream back; false where the sidecar has taken them, to relay on
 * itself. */
bool sidecar_take_back(struct sidecar *sidecar, unsigned stream);

/* The stream is over: takes its duplicates back and tells the sidecar. */
void sidecar_closed(struct sidecar *sidecar, unsigned stream);

/* After frames were added: sends what can be sent, notes whether the relay must pause. */
void sidecar_flush(struct sidecar *sidecar);

/* The same where something is due, FRAME_BYTES wait, or so much that no more may be read. */
void sidecar_flush_if_due(struct sidecar *sidecar);
void sidecar_flush_if_full(struct sidecar *sidecar);

/* The pipe takes bytes again. */
void sidecar_unblock(struct sidecar *sidecar);

/* `report` is readable. */
void sidecar_read_report(struct sidecar *sidecar);

/* What only time tells: every half second while `sidecar_needs_care`. */
void sidecar_check(struct sidecar *sidecar);
bool sidecar_needs_care(const struct sidecar *sidecar);

/* After the EXIT frame was sent: the sidecar sees the pipe's end. Progress is now what it reads out
 * of it. */
void sidecar_hang_up(struct sidecar *sidecar);

/* After that, some times a second: whether it is worth waiting for `done`, or for how it died. */
bool sidecar_may_finish(struct sidecar *sidecar);

#endif
