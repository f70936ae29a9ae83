#include "task.h"

#include "basics.h"
#include "ends.h"
#include "optin.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef WAIT_FACTOR /* the Makefile has a greater one for tests: valgrind's keepers take their time */
#define WAIT_FACTOR 1
#endif

/* How long a task waits for the keeper, at most. It may be the first to wake it, and 64 may come at
 * once. */
enum { ANSWER_MS = WAIT_FACTOR * 10000, READY_MS = WAIT_FACTOR * 10000, SEND_MS = WAIT_FACTOR * 1000 };

enum { YEAR_SECS = 365 * 86400 }; /* after its start, by Slurm's word, a job without a limit ends */

static struct wire_packet packet; /* of this process alone: Slurm forks one for each task */

static void complain(const struct task_wish *wish, const char *what, int error)
{
    char text[256];
    int size = snprintf(text, sizeof text, "task %u is not captured: %s: %s", wish->task, what, strerror(error));
    if (size > 0 && (size_t)size < sizeof text) {
        struct wire_head head = {.type = WIRE_SAY, .task = wish->task, .size = (uint32_t)size};
        (void)wire_send(wish->keeper, head, text, NULL, 0, 0);
    }
}

/* Asks for what counts, after a look of our own. Returns the bits; 0 where nobody opted in, or
 * nobody answers. */
static int ask(const struct task_wish *wish)
{
    static struct look look;
    int reply[2];
    optin_look(wish->home, wish->keeper, wish->task, &look);
    struct wire_head head = {.type = WIRE_ASK, .task = wish->task, .value = (int)look.state, .size = (uint32_t)look.size};
    if (look.state == LOOK_ABSENT || look.state == LOOK_UNKNOWN) {
        /* told, not asked: who didn't opt in shall not wait for the keeper's start */
        if (wire_send(wish->keeper, head, NULL, NULL, 0, SEND_MS))
            complain(wish, "the keeper can't be told", errno);
        return 0;
    }
    if (wire_pair(reply)) {
        complain(wish, "no socket", errno);
        return 0;
    }
    int sent = wire_send(wish->keeper, head, look.content, &reply[1], 1, SEND_MS);
    int error = errno;
    close_fd(&reply[1]);
    int bits = 0;
    int got = sent ? -1 : wire_receive(reply[0], &packet, ANSWER_MS);
    if (sent)
        complain(wish, "the keeper can't be asked", error);
    else if (got == 1 && packet.head.type == WIRE_ANSWER)
        bits = packet.head.value;
    else
        complain(wish, "the keeper doesn't answer", got < 0 ? errno : ECONNRESET);
    close_fd(&reply[0]);
    return bits;
}

/* Hands masters and own outputs to the keeper, waits until they are relayed. */
static bool hand_over(const struct task_wish *wish, const struct ends *ends)
{
    struct wire_task facts = {.tty = ends->tty != 0, .limit_secs = wish->limit_secs};
    int reply[2];
    snprintf(facts.host, sizeof facts.host, "%s", wish->host);
    if (wire_pair(reply)) {
        complain(wish, "no socket", errno);
        return false;
    }
    const int fds[] = {reply[1], ends->masters[0], STDOUT_FILENO, ends->masters[1], STDERR_FILENO};
    struct wire_head head = {.type = WIRE_TASK, .task = wish->task, .size = sizeof facts};
    int sent = wire_send(wish->keeper, head, &facts, fds, sizeof fds / sizeof *fds, SEND_MS);
    int error = errno;
    close_fd(&reply[1]);
    bool ready = false;
    if (sent)
        complain(wish, "the keeper can't be told", error);
    else
        ready = wire_receive(reply[0], &packet, READY_MS) == 1 && packet.head.type == WIRE_READY && packet.head.value == 1;
    close_fd(&reply[0]);
    return ready;
}

static bool capture(const struct task_wish *wish, int bits)
{
    struct ends ends;
    if (ends_make(&ends, !(bits & WIRE_NO_TTY), wish->columns, wish->rows)) {
        complain(wish, "no terminals or pipes", errno);
        return false;
    }
    bool ready = hand_over(wish, &ends);
    /* dup2 onto an open fd can't fail but for EINTR */
    for (int i = 0; ready && i < 2; i++)
        while (dup2(ends.slaves[i], STDOUT_FILENO + i) < 0 && errno == EINTR)
            ;
    ends_close(&ends);
    return ready;
}

/* -1 where the text isn't a number. */
static int64_t seconds(const char *text)
{
    char *end = NULL;
    long long value = text[0] >= '0' && text[0] <= '9' && strlen(text) <= 12 ? strtoll(text, &end, 10) : 0;
    return end && !*end ? value : -1;
}

uint32_t task_limit_secs(const char *start, const char *end)
{
    int64_t begun = seconds(start), limit = seconds(end) - begun;
    return begun > 0 && limit > 0 && limit < YEAR_SECS ? (uint32_t)limit : 0;
}

bool task_begin(const struct task_wish *wish)
{
    /* a real terminal (srun --pty) is left alone; `srun --unbuffered` has one as its output only */
    bool leave = wish->leave || isatty(STDIN_FILENO);
    if (wish->restarts && wire_tell(wish->keeper, WIRE_RESTARTS, wish->task, (int)wish->restarts, SEND_MS)) {
        complain(wish, "the keeper can't be told", errno);
        return false;
    }
    int bits = wish->bits >= 0 ? wish->bits : ask(wish);
    if (!(bits & WIRE_IN))
        return false; /* the keeper knows */
    if (!leave && !(wish->nested && !(bits & WIRE_PER_TASK)) && capture(wish, bits))
        return true;
    (void)wire_tell(wish->keeper, WIRE_PASS, wish->task, 0, 0);
    return false;
}
