#include "looker.h"

#include "basics.h"
#include "cgroup.h"

#include <stdio.h>
#include <string.h>

enum { MAX_LOOKERS = 1024, PATIENCE_MS = 50 };

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

static bool looks_on(unsigned i)
{
    char path[32];
    uint64_t started;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)lookers[i].pid);
    /* its pid alone may be somebody else's by now, whom it isn't ours to free of limits */
    return process_started(path, &started) == 0 && started == lookers[i].started;
}

void looker_take_out(bool all, void (*say)(const char *text))
{
    unsigned done = 0;
    int64_t now = now_ns();
    for (; done < count && (all || now >= lookers[done].due_ns); done++)
        if (looks_on(done))
            (void)cgroup_leave("", lookers[done].pid, say);
    count -= done;
    memmove(lookers, lookers + done, count * sizeof *lookers);
}
