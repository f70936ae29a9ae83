/* The look at ~/.logoptin (R1-R4, R13), as logshipper/optin.py does it, and the few options that
 * must be known before Python runs. */
#ifndef LOGSHIPPER_OPTIN_H
#define LOGSHIPPER_OPTIN_H

#include <stddef.h>
#include <stdint.h>

#define OPTIN_MAX_BYTES (64 << 10)
/* How long it may take; and where the node is too busy to look: time in which who looks waits for a
 * processor isn't the home's */
enum { OPTIN_LOOK_MS = 2000, OPTIN_BUSY_MS = 10000 };

enum look_state {
    LOOK_ABSENT = 0,  /* no such file: nobody opted in */
    LOOK_UNKNOWN = 1, /* couldn't be established in time: nobody opted in */
    LOOK_PRESENT = 2, /* content: the file's bytes */
    LOOK_REFUSED = 3, /* it is there, but can't be used: logging starts disabled; content: the reason */
};

struct look {
    enum look_state state;
    size_t size;
    unsigned char content[OPTIN_MAX_BYTES + 1];
};

/* Looks as the calling process, which must be the user's own, never root's. A process of its own
 * touches the file, as a dead file server may keep it waiting for good; it is forked twice, so that
 * what is exec'ed here finds no child. It tells the keeper (a socket), which takes it out of the
 * job's cgroups where it hangs; where no keeper is there, it doesn't look. home: where that is no
 * absolute path, it is the one that the system knows of the user. */
void optin_look(const char *home, int keeper, uint32_t task, struct look *look);

/* WIRE_NO_TTY and WIRE_PER_TASK where the content has the literal top-level lines `tty: false` and
 * `per_task: true`. */
int optin_options(const unsigned char *content, size_t size);

#endif
