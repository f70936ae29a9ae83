/* Small things that both the plugin and the keeper need. */
#ifndef LOGSHIPPER_BASICS_H
#define LOGSHIPPER_BASICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_NS INT64_C(1000000)
#define SEC_NS INT64_C(1000000000)

/* Of the monotonic clock. */
int64_t now_ns(void);

/* Milliseconds until a time of that clock, rounded up, 0 where it is over: for poll(2). */
int ms_until(int64_t deadline_ns);

/* Closes *fd, if there is one, and forgets it. */
void close_fd(int *fd);

/* Closes all fds from `first` on. Async-signal-safe. */
void close_from(int first);

/* Writes all; returns 0, or -1 (errno). */
int write_all(int fd, const void *data, size_t size);

/* When a process began, in the kernel's ticks; path: /proc/PID/stat. Async-signal-safe. Returns 0,
 * or -1 where there is none, or it is dead. */
int process_started(const char *path, uint64_t *started);

/* Whether it runs, or would if it were let; path as above. Async-signal-safe. */
bool process_waits_for_processor(const char *path);

/* Where the scheduler shares the processor out by session (sched_autogroup_enabled), a process' own
 * nice value counts among its session's only; this is the one of the session. Elsewhere nothing
 * happens. */
void session_nice(int nice);

/* What is sent to a job, by an impatient user, or by systemd to all that is in slurmstepd's scope
 * doesn't end this process, nor what it execs; other signals do what they do by default. */
void ignore_signals_of_jobs(void);

/* Whether text begins with another one. */
int starts_with(const char *text, const char *with);

#endif
