/* What plugstack.conf says behind the plugin's name, as `key=value` words. The keeper gets the same
 * words as its arguments, so that both mean the same by them. */
#ifndef LOGSHIPPER_SETTINGS_H
#define LOGSHIPPER_SETTINGS_H

#include <stddef.h>

struct settings {
    const char *spool;   /* the node's spool, [agent] spool_dir of the agent's configuration */
    const char *cluster; /* as [agent] cluster */
    const char *python;  /* that has the logshipper package */
    const char *keeper;  /* path of logshipper-keeper; NULL: next to the plugin */
    unsigned columns, rows;
    unsigned drain_secs;   /* how long the end of a task waits for its output to be delivered, at most */
    unsigned start_secs;   /* how long a task waits for its relay on a node that isn't busy, at most */
    unsigned stall_secs;   /* without progress of the sidecar until it is given up */
    unsigned max_captures; /* of one user in the spool, as [agent] max_captures_per_user */
};

/* Words point into argv, which must live as long. Returns 0, or -1 and in `why` which word is wrong
 * and how. */
int settings_parse(struct settings *settings, int argc, char **argv, char *why, size_t why_size);

#endif
