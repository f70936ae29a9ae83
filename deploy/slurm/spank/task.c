#include "task.h"

#include "basics.h"
#include "ends.h"
#include "optin.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEND_MS = 1000, SLICE_MS = 500, MOST_BUSY = 6 };

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

unsigned task_patience_secs(unsigned start_secs, const char *loadavg, long cores)
{
    unsigned whole = 0, parts = 0, running = 0;
    if (sscanf(loadavg, "%5u.%2u %*s %*s %5u/", &whole, &parts, &running) != 3 || cores <= 0)
        return start_secs;
    unsigned load = whole * 100 + parts, now = running * 100, most = load > now ? load : now;
    unsigned percent = most / (unsigned)cores;
    percent = percent < 100 ? 100 : percent;
    percent = percent > MOST_BUSY * 100 ? MOST_BUSY * 100 : percent;
    return start_secs * percent / 100;
}

static unsigned patience_secs(const struct task_wish *wish)
{
    char text[64] = "";
    int fd = open(wish->loadavg, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[size > 0 ? size : 0] = 0;
    close_fd(&fd);
    return task_patience_secs(wish->start_secs, text, sysconf(_SC_NPROCESSORS_ONLN));
}

/* The keeper's or the relay's word, as wire_receive. The node may become busy, or idle, meanwhile:
 * its load is asked again and again. */
static int listen_patiently(int reply, const struct task_wish *wish)
{
    int64_t began = now_ns();
    for (;;) {
        int got = wire_receive(reply, &packet, SLICE_MS);
        if (got >= 0 || errno != EAGAIN)
            return got;
        if (now_ns() - began >= patience_secs(wish) * SEC_NS) {
            errno = EAGAIN;
            return -1;
        }
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
    int got = sent ? -1 : listen_patiently(reply[0], wish);
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
        ready = listen_patiently(reply[0], wish) == 1 && packet.head.type == WIRE_READY && packet.head.value == 1;
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
