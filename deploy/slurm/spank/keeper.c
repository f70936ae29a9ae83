/* logshipper-keeper: what runs next to a step's tasks, out of the job's cgroups and of slurmstepd's way.
 *
 * The plugin execs it right after its two forks, so it has an address space of its own: no lock, no heap, no thread of
 * slurmstepd's is left in it, and what follows is an ordinary program. Its fd 3 leads to slurmstepd and the step's
 * tasks. It is root, and does what root must do: record the decision, make each task's directory. For each task it
 * forks a relay, which becomes the job's user for good, starts the sidecar, and relays. It ends when slurmstepd is gone
 * and the relays are, or when no task is captured.
 *
 * Usage: logshipper-keeper SETTING=VALUE...      (with the socket as fd 3; see settings.h) */

#include "keeper.h"

#include "basics.h"
#include "cgroup.h"
#include "decision.h"
#include "fault_points.h"
#include "last_words.h"
#include "looker.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEP_MS = 5000, ORPHANED_MS = 1000, START_SESSION_NICE = 15 };

struct keeper keeper;

/* ---- the decision */

/* Whether a decision stands, for the restart that is known now. Returns 0, or -1 where that can't
 * be known. */
static int read_decision(void)
{
    const struct wire_step *step = &keeper.step;
    int stands = decision_find(keeper.spool, step->job_id, step->uid, step->restarts, &keeper.decision);
    if (stands < 0)
        say_format("not captured: the job's decision can't be read: %s", strerror(errno));
    keeper.decided = stands > 0;
    return stands < 0 ? -1 : 0;
}

/* Before anything follows from the number: a batch script has one task, which tells this first. */
static void take_restarts(const struct wire_packet *packet)
{
    if (keeper.kept_count || keeper.settled || packet->head.value <= 0 ||
        (uint32_t)packet->head.value <= keeper.step.restarts)
        return;
    keeper.step.restarts = (uint32_t)packet->head.value;
    if (read_decision()) {
        keeper.decision.state = LOOK_UNKNOWN;
        keeper.decided = true;
    }
}

static void answer_look(const struct wire_packet *packet)
{
    const struct wire_step *step = &keeper.step;
    if (!keeper.decided) {
        keeper.decision.state = packet->head.value >= LOOK_ABSENT && packet->head.value <= LOOK_REFUSED
                                    ? (enum look_state)packet->head.value
                                    : LOOK_UNKNOWN;
        keeper.decision.size = packet->head.size <= OPTIN_MAX_BYTES ? packet->head.size : 0;
        memcpy(keeper.decision.content, packet->payload, keeper.decision.size);
        if (decision_make(keeper.spool, step->job_id, step->uid, step->restarts, &keeper.decision)) {
            say_format("not captured: %s/.jobs can't be written: %s", keeper.settings.spool, strerror(errno));
            keeper.decision.state = LOOK_UNKNOWN; /* a later step could decide otherwise: then nothing is logged now */
        } else if (keeper.decision.state == LOOK_UNKNOWN) {
            say("not captured: ~/.logoptin couldn't be looked at within 2 s");
        }
        keeper.decided = true;
        FAULT_POINT(keeper_decided);
    }
    int bits = decision_bits(&keeper.decision);
    if (!(bits & WIRE_IN) || !packet->fd_count) /* the second: it found no file itself, and went on */
        keeper.settled++;
    if (packet->fd_count)
        (void)wire_tell(packet->fds[0], WIRE_ANSWER, packet->head.task, bits, REPLY_MS);
}

/* ---- the course */

static void slurmstepd_gone(void)
{
    close_fd(&keeper.socket);
    for (unsigned i = 0; i < keeper.kept_count; i++)
        if (keeper.kept[i].socket >= 0)
            (void)wire_tell(keeper.kept[i].socket, WIRE_GONE, 0, 0, 0);
}

/* Whether each task of the step is left alone, or its relay relays. */
static bool has_each_begun(void)
{
    for (unsigned i = 0; i < keeper.kept_count; i++)
        if (keeper.kept[i].capture.folder >= 0 && keeper.kept[i].socket >= 0)
            return false;
    return keeper.settled == keeper.step.local_tasks;
}

/* Once all tasks run, what still starts in this session is Python, which mustn't keep others' jobs
 * from starting; when a task has ended, Python has a session of its own, and somebody waits for
 * us. */
static void share_processor(void)
{
    bool yields = !keeper.hurries && has_each_begun();
    if (yields != keeper.yields)
        session_nice(yields ? START_SESSION_NICE : 0);
    keeper.yields = yields;
}

static void hear_exit(const struct wire_packet *packet)
{
    keeper.hurries = true;
    share_processor();
    take_exit(packet);
}

static void hear_step(struct wire_packet *packet)
{
    int got = wire_receive(keeper.socket, packet, 0);
    if (got < 0 && errno == ECONNRESET)
        last_words_unread(keeper.spool); /* it is gone, as the next look tells */
    if (got < 0)
        return;
    if (got == 0)
        slurmstepd_gone();
    else if (packet->head.type == WIRE_ASK)
        answer_look(packet);
    else if (packet->head.type == WIRE_TASK)
        take_task(packet);
    else if (packet->head.type == WIRE_RESTARTS)
        take_restarts(packet);
    else if (packet->head.type == WIRE_LOOKER)
        looker_note(packet);
    else if (packet->head.type == WIRE_PASS)
        keeper.settled++;
    else if (packet->head.type == WIRE_EXIT)
        hear_exit(packet);
    else if (packet->head.type == WIRE_SAY)
        say((const char *)packet->payload);
    for (unsigned i = 0; i < packet->fd_count; i++)
        close(packet->fds[i]);
}

/* A relay has closed its socket and isn't reaped yet. */
static bool is_one_dying(void)
{
    for (unsigned i = 0; i < keeper.kept_count; i++)
        if (keeper.kept[i].socket < 0 && keeper.kept[i].relay > 0)
            return true;
    return false;
}

static bool is_over(void)
{
    for (unsigned i = 0; i < keeper.kept_count; i++)
        if (keeper.kept[i].socket >= 0 || keeper.kept[i].relay > 0)
            return false;
    return keeper.socket < 0 || (!keeper.kept_count && keeper.settled >= keeper.step.local_tasks);
}

static void serve(void)
{
    static struct wire_packet packet;
    static struct pollfd places[MAX_TASKS + 1];
    while (!is_over()) {
        places[0] = (struct pollfd){.fd = keeper.socket, .events = POLLIN};
        for (unsigned i = 0; i < keeper.kept_count; i++)
            places[i + 1] = (struct pollfd){.fd = keeper.kept[i].socket, .events = POLLIN};
        unsigned count = keeper.kept_count;
        int wait_ms = is_one_dying() ? DYING_MS : looker_wait_ms();
        if (poll(places, count + 1, wait_ms < 0 && keeper.socket < 0 ? ORPHANED_MS : wait_ms) < 0)
            continue; /* EINTR */
        looker_take_out(false, say);
        for (unsigned i = 0; i < count; i++)
            if (places[i + 1].revents)
                hear_relay(&keeper.kept[i], &packet);
        if (places[0].revents)
            hear_step(&packet);
        reap();
        share_processor();
        if (keeper.socket < 0)
            end_stopped();
    }
}

int main(int argc, char **argv)
{
    static struct wire_packet packet;
    char why[512];
    settle_in();
    keeper.socket = KEEPER_SOCKET;
    keeper.spool = keeper.user_pipe = keeper.namespace = -1;
    if (settings_parse(&keeper.settings, argc - 1, argv + 1, why, sizeof why)) {
        say(why);
        return 2;
    }
    if (wire_receive(KEEPER_SOCKET, &packet, STEP_MS) != 1 || packet.head.type != WIRE_STEP ||
        packet.head.size != sizeof keeper.step) {
        say("slurmstepd didn't say whose the step is");
        return 2;
    }
    memcpy(&keeper.step, packet.payload, sizeof keeper.step);
    keeper.step.name[sizeof keeper.step.name - 1] = 0;
    keeper.step.account[sizeof keeper.step.account - 1] = 0;
    keeper.step.partition[sizeof keeper.step.partition - 1] = 0;
    if (cgroup_leave("", 0, say)) {
        say("not captured: what captures it would count against the job");
        return 1;
    }
    keeper.spool = spool_open(keeper.settings.spool, why, sizeof why);
    if (keeper.spool < 0) {
        say(why);
        return 1;
    }
    if (read_decision())
        return 1;
    ask_for_user();
    serve();
    looker_take_out(true, say);
    return 0;
}
