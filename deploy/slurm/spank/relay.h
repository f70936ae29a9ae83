/* The relay: reads a task's stdout and stderr, writes them on unchanged and first, then hands them
 * to the sidecar. The same as logshipper/relay/relay.py; it knows nothing of the bytes' meaning.
 * One loop turn is one poll; of each readable stream at most 60 KiB are read, written on, counted
 * and handed over. Invariants:
 * - A stream with blocked output isn't read, so the task waits as it would without us. The other
 *   one goes on.
 * - A stream is called empty only where a poll that asked for it said so. What is deliberately not
 *   read isn't asked for.
 * - Nothing waits without a bound but a poll in which nothing can be due. */
#ifndef LOGSHIPPER_RELAY_H
#define LOGSHIPPER_RELAY_H

#include "channel.h"
#include "modes.h"
#include "sidecar.h"

struct relay {
    struct channel channels[2];
    struct shared_line line;
    struct sidecar sidecar;
    struct counters *counters;
    struct journal journal;
    struct modes_slot *modes; /* NULL: none */
    int order;   /* an epoll that tells which stream became readable first; -1: none */
    int keeper;  /* socket to the keeper; -1: it is gone */
    uint32_t task;
    pid_t cmd_pid;
    int cmd_pidfd;
    bool fresh;      /* something was handed over, or listened to again, since the last empty notice */
    size_t burst;    /* bytes since the last silence */
    int64_t sink_due_ns;
    bool stopped;    /* streams are neither read nor written any more */
    bool ended;      /* CMD is */
    bool orphaned;   /* slurmstepd is gone: how CMD ends will not be told */
    int wait_status;
};

/* Of a relay that is all zeros: without streams. counters, journal and modes are the caller's to
 * set. */
void relay_init(struct relay *relay);

/* stream: 1, 2. Takes over both fds. To be called for each stream that there is; then `relay_run`,
 * which returns when all is delivered and handed over. */
void relay_add(struct relay *relay, int stream, int master, int out);
void relay_run(struct relay *relay);

/* Before `relay_run`: the task has gone on with its own outputs. Both streams are let go; the
 * sidecar writes down that the task isn't captured, and how it ends. */
void relay_missed(struct relay *relay);

#endif
