/* The keeper's state and its parts: keeper.c is the course, keeper_start.c what it begins with,
 * keeper_tasks.c the tasks that it keeps. */
#ifndef LOGSHIPPER_KEEPER_H
#define LOGSHIPPER_KEEPER_H

#include "optin.h"
#include "settings.h"
#include "spool.h"
#include "wire.h"

#include <stdbool.h>
#include <sys/types.h>

enum { KEEPER_SOCKET = 3, MAX_TASKS = 1024, REPLY_MS = 100, DYING_MS = 10 };

/* One captured task. */
struct kept {
    uint32_t task;
    pid_t relay;
    int socket; /* to the relay; -1: it is gone */
    bool drained, stopped, killed;
    struct capture capture; /* open until the relay says that it relays */
};

struct keeper {
    struct settings settings;
    struct wire_step step;
    struct look decision;
    bool decided;
    bool hurries; /* a task has ended */
    bool yields;  /* this session has little of the processor */
    int spool, socket; /* socket: -1: slurmstepd is gone */
    int user_pipe;     /* where the user's name comes from; -1: it is there, or won't come */
    int namespace;     /* of the user's helpers; -1: none */
    char user[132];
    unsigned settled; /* tasks that are captured or left alone */
    unsigned kept_count;
    struct kept kept[MAX_TASKS];
};

extern struct keeper keeper;

/* ---- keeper_start.c */

/* None of slurmstepd's fds, signals, or folders. */
void settle_in(void);

/* Asks for the step's user's name besides all else; and waits for it, a second at most: its number
 * where it can't be had. */
void ask_for_user(void);
const char *user_name(void);

/* A line of the node's log. */
void say(const char *text);
__attribute__((format(printf, 1, 2))) void say_format(const char *format, ...);

/* ---- keeper_tasks.c */

/* What slurmstepd's side says: a task hands itself over; it ended. */
void take_task(const struct wire_packet *packet);
void take_exit(const struct wire_packet *packet);

/* A relay has something to say, or is gone. */
void hear_relay(struct kept *kept, struct wire_packet *packet);

/* Relays that have ended, or were stopped. */
void reap(void);

/* Kills relays that their user has stopped: they would stay for good, beyond the job. The sidecar
 * takes over. */
void end_stopped(void);

#endif
