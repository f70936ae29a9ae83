#include "looker.h"

#include "basics.h"
#include "cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>

enum { MAX_LOOKERS = 1024, PATIENCE_MS = 50, MOVER_SECS = 10 };

/* In the order in which they came, which is that in which they are due. */
static struct {
    pid_t pid;
    uint64_t started;
    int64_t due_ns;
} lookers[MAX_LOOKERS];
static unsigned count;

void looker_note(const struct wire_packet *packet)
{
    struct wire_looker looker;
    if (count >= MAX_LOOKERS || packet->pid <= 0 || packet->head.size != sizeof looker)
        return;
    memcpy(&looker, packet->payload, sizeof looker);
    lookers[count].pid = packet->pid;
    lookers[count].started = looker.started;
    lookers[count++].due_ns = now_ns() + PATIENCE_MS * MS_NS;
}

int looker_wait_ms(void)
{
    return count ? ms_until(lookers[0].due_ns) : -1;
}

static bool looks_on(pid_t pid, uint64_t started)
{
    char path[32];
    uint64_t found;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    return process_started(path, &found) == 0 && found == started;
}

void looker_move(const char *root, pid_t pid, uint64_t started, void (*say)(const char *text))
{
    char text[128];
    if (!looks_on(pid, started))
        return;
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0) {
        if (looks_on(pid, started))
            (void)cgroup_leave(root, pid, say);
        return;
    }
    int error = errno;
    if (looks_on(pid, started)) {
        snprintf(text, sizeof text, "who looks at ~/.logoptin stays in the job's cgroups: it can't be traced: %s",
                 strerror(error));
        say(text);
    }
}

void looker_take_out(bool all, void (*say)(const char *text))
{
    unsigned done = 0, left = 0;
    int64_t now = now_ns();
    for (; done < count && (all || now >= lookers[done].due_ns); done++)
        if (looks_on(lookers[done].pid, lookers[done].started))
            lookers[left++] = lookers[done];
    pid_t mover = left ? fork() : 1;
    if (mover == 0) {
        (void)alarm(MOVER_SECS); /* it has the keeper's sockets */
        for (unsigned i = 0; i < left; i++)
            looker_move("", lookers[i].pid, lookers[i].started, say);
        _exit(0);
    }
    if (mover < 0)
        say("who looks at ~/.logoptin stays in the job's cgroups: there is no process available");
    count -= done;
    memmove(lookers, lookers + done, count * sizeof *lookers);
}
