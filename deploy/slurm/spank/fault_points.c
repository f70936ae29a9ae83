#include "fault_points.h"

#ifdef FAULTS_FOLDER

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define AS_PATH(name, meaning) FAULTS_FOLDER "/" #name,
#define AS_WAIT(name, meaning) FAULTS_FOLDER "/" #name ".wait",
static const char *const PATHS[] = {ALL_FAULT_POINTS(AS_PATH)};
static const char *const WAITS[] = {ALL_FAULT_POINTS(AS_WAIT)};

void fault_point_reached(enum fault number)
{
    int error = errno;
    if (unlink(PATHS[number]) == 0)
        (void)kill(getpid(), SIGKILL);
    while (access(WAITS[number], F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    errno = error;
}

#else

typedef int nothing_here; /* ISO C wants one declaration at least */

#endif
