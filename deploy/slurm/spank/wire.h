/* Between slurmstepd, its tasks and the keeper: packets of a SOCK_SEQPACKET socket pair, on one
 * machine and from one build, so structs go as they are. Every task asks with a reply socket of its
 * own, as all tasks share the pair. */
#ifndef LOGSHIPPER_WIRE_H
#define LOGSHIPPER_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WIRE_MAX_PAYLOAD ((64 << 10) + 1024)
enum { WIRE_MAX_FDS = 5 };

enum wire_type {
    WIRE_STEP = 1, /* slurmstepd -> keeper, the first: struct wire_step */
    WIRE_ASK,      /* task -> keeper: what the look at ~/.logoptin found (value: enum look_state; payload); fd: reply, none
                      where it found none and has gone on */
    WIRE_ANSWER,   /* keeper -> task: value: bits of WIRE_IN... */
    WIRE_TASK,     /* task -> keeper: struct wire_task; fds: reply, then master and out of stdout and of stderr */
    WIRE_READY,    /* keeper or relay -> task: value 1: go on with the new ends; 0: as you were */
    WIRE_PASS,     /* task -> keeper: this one is left alone */
    WIRE_EXIT,     /* slurmstepd -> keeper -> relay: value: wait status */
    WIRE_DRAINED,  /* relay -> keeper -> slurmstepd: all that the task printed is where it belongs */
    WIRE_SAY,      /* anybody: payload: a line for the node's log */
    WIRE_GONE,     /* keeper -> relay: slurmstepd is gone */
    WIRE_RESTARTS, /* task -> keeper, before it asks: value: more restarts than WIRE_STEP told */
    WIRE_LOOKER,   /* who looks at ~/.logoptin -> keeper, before it does: struct wire_looker */
    WIRE_NO_EXEC,  /* what was to become the keeper -> slurmstepd: value: errno */
};

enum { WIRE_IN = 1, WIRE_NO_TTY = 2, WIRE_PER_TASK = 4 };

struct wire_head {
    uint32_t type;
    uint32_t task; /* global rank */
    int32_t value;
    uint32_t size; /* of the payload */
};

/* Whose the step is. Strings end with NUL; their bytes may be anything else. */
struct wire_step {
    uint32_t job_id, step_id, restarts, array_job_id, array_task_id;
    uint32_t uid, gid;
    uint32_t local_tasks;
    uint32_t nodes; /* of the job; 0 where that isn't known */
    uint32_t recorded; /* restarts, account and partition are Slurm's own word (job_record.h) */
    char name[260], account[132], partition[132];
};

struct wire_task {
    uint32_t tty; /* ends are ptys, not pipes */
    uint32_t limit_secs; /* of the job's time; 0 where that isn't known */
    char host[256]; /* the node's name, as Slurm knows it */
};

struct wire_looker {
    uint64_t started; /* as /proc/PID/stat has it: its pid, which comes with the packet, may be another's by then */
};

struct wire_packet {
    struct wire_head head;
    unsigned char payload[WIRE_MAX_PAYLOAD + 1]; /* a NUL is put behind what came */
    pid_t pid; /* who sent it, where the socket has SO_PASSCRED; else 0 */
    int fds[WIRE_MAX_FDS];
    unsigned fd_count;
};

/* Makes the pair; both ends close on exec and tell who sends. Returns 0 or -1 (errno). */
int wire_pair(int ends[2]);

/* Sends one packet within wait_ms. Returns 0 or -1 (errno). Allocates nothing, raises no
 * SIGPIPE. */
int wire_send(int fd, struct wire_head head, const void *payload, const int *fds, unsigned fd_count, int wait_ms);

/* As wire_send without fds and payload. */
int wire_tell(int fd, enum wire_type type, uint32_t task, int value, int wait_ms);

/* Receives one packet within wait_ms; its fds close on exec and are the caller's. Returns 1; 0 at
 * the end (the other side is gone); -1 (errno; EAGAIN: the time is over; EBADMSG: not a packet of
 * ours). */
int wire_receive(int fd, struct wire_packet *packet, int wait_ms);

#endif
