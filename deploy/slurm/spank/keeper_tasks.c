#include "keeper.h"

#include "basics.h"
#include "decision.h"
#include "fault_points.h"
#include "job_record.h"
#include "last_words.h"
#include "modes.h"
#include "output.h"
#include "privileges.h"
#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h> /* numbers of special steps only */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REPLY, TASK_FDS = 5 };

/* Nothing of the keeper's own, and of other tasks', stays open in a relay. */
static void shed_others(void)
{
    for (unsigned i = 0; i < keeper.kept_count; i++) {
        close_fd(&keeper.kept[i].socket);
        capture_close(&keeper.kept[i].capture);
    }
    close_fd(&keeper.user_pipe);
    close_fd(&keeper.socket);
    (void)prctl(PR_SET_NAME, "logship-relay");
}

/* The relay of a task, by the time that it is the user's. Returns 0 or -1 (errno). outs: its own
 * outputs. */
static int make_relay(struct relay *relay, const struct wire_packet *packet, struct capture *capture, int socket,
                      const int outs[2])
{
    relay_init(relay);
    relay->keeper = socket;
    relay->task = packet->head.task;
    relay->cmd_pid = packet->pid;
    relay->cmd_pidfd = (int)syscall(SYS_pidfd_open, packet->pid, 0); /* it waits for our word: it is alive */
    if (relay->cmd_pidfd < 0)
        relay->cmd_pidfd = -1;
    relay->counters = counters_make(capture->segments);
    if (!relay->counters || journal_make(&relay->journal))
        return -1;
    relay_add(relay, 1, packet->fds[1], outs[0]);
    relay_add(relay, 2, packet->fds[3], outs[1]);
    return 0;
}

/* Returns 0, or -1 where there is no process available. */
static int start_sidecar(struct relay *relay, const struct wire_task *task, const struct capture *capture,
                         const struct modes *modes, const int pipe[2])
{
    char folder[512];
    struct timespec now = {0};
    const struct channel *channels = relay->channels;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    snprintf(folder, sizeof folder, "%s/%s", keeper.settings.spool, capture->name);
    const struct sidecar_plan plan = {
        .python = keeper.settings.python,
        .folder = folder,
        .name = keeper.step.name,
        .task = relay->task,
        .limit_secs = task->limit_secs,
        .capture = capture,
        .content = keeper.decision.content,
        .content_size = keeper.decision.size,
        .refused = keeper.decision.state == LOOK_REFUSED,
        .tty = task->tty != 0,
        .cmd_pid = relay->cmd_pid,
        .cmd_pidfd = relay->cmd_pidfd,
        .columns = keeper.settings.columns,
        .rows = keeper.settings.rows,
        .started_ns = (uint64_t)now.tv_sec * (uint64_t)SEC_NS + (uint64_t)now.tv_nsec,
        .modes = modes,
        .pipe = {pipe[0], pipe[1]},
        .journal = relay->journal.fd,
        .stages = {channels[0].out.stage[0], channels[1].out.stage[0]},
        .stall_secs = keeper.settings.stall_secs,
    };
    return sidecar_start(&relay->sidecar, &plan);
}

/* The relay's whole life, in its own process. Ends it. */
static void be_relay(const struct wire_packet *packet, const struct wire_task *task, struct capture *capture, int socket)
{
    static struct relay relay;
    struct modes modes;
    char text[128];
    int reply = packet->fds[REPLY], outs[2] = {packet->fds[2], packet->fds[4]}, side[2];
    shed_others();
    output_own_description(&outs[0]);
    output_own_description(&outs[1]);
    modes_begin(&modes, keeper.spool, &keeper.step);
    /* root's, so that it isn't charged to the user; the user's to open again, which tells how much
     * is unread in it */
    int failed = sidecar_make_pipe(side, keeper.step.local_tasks) ||
                 (geteuid() == 0 && fchown(side[0], keeper.step.uid, keeper.step.gid)) ||
                 sidecar_offer(&relay.sidecar, (const int[2]){packet->fds[1], packet->fds[3]}, outs) ||
                 become_user(keeper.step.uid, keeper.step.gid, keeper.namespace);
    close_fd(&keeper.namespace);
    close_fd(&keeper.spool);
    if (failed)
        _exit(1);
    if (make_relay(&relay, packet, capture, socket, outs)) {
        snprintf(text, sizeof text, "not captured: no shared memory can be made: %s", strerror(errno));
        struct wire_head head = {.type = WIRE_SAY, .size = (uint32_t)strlen(text)};
        (void)wire_send(socket, head, text, NULL, 0, 0);
        _exit(1);
    }
    relay.modes = modes.slot;
    FAULT_POINT(relay_made);
    int started = start_sidecar(&relay, task, capture, &modes, side) == 0;
    (void)setsid(); /* Python starts in the keeper's session, which has little of the processor meanwhile */
    close_fd(&modes.fd);
    close_fd(&modes.awaited);
    close_fd(&relay.journal.fd);
    capture_close(capture);
    FAULT_POINT(sidecar_started);
    if (!started)
        _exit(1); /* there is no process available: the task goes on as it was */
    /* from here on somebody holds the streams whoever dies: the task may have them */
    if (wire_tell(reply, WIRE_READY, packet->head.task, 1, REPLY_MS))
        relay_missed(&relay);
    close(reply);
    FAULT_POINT(relay_begun);
    (void)wire_tell(socket, WIRE_READY, packet->head.task, 0, REPLY_MS);
    relay_run(&relay);
    _exit(0);
}

/* A batch script's account and partition are Slurm's word, which later steps of the job take from
 * here. */
static void record_batch(void)
{
    if (keeper.step.step_id == SLURM_BATCH_SCRIPT && !keeper.step.recorded && !keeper.kept_count &&
        job_record_write(keeper.spool, &keeper.step, false, true))
        say_format("%s/.jobs can't be written: %s", keeper.settings.spool, strerror(errno));
}

static int keep_task(const struct wire_packet *packet, char *why, size_t why_size)
{
    struct wire_task task;
    struct capture capture;
    int pair[2];
    if (!keeper.decided || !(decision_bits(&keeper.decision) & WIRE_IN)) {
        snprintf(why, why_size, "a task asks out of turn");
        return -1;
    }
    if (keeper.kept_count >= MAX_TASKS) {
        snprintf(why, why_size, "a step has %d captured tasks on a node at most", MAX_TASKS);
        return -1;
    }
    memcpy(&task, packet->payload, sizeof task);
    task.host[sizeof task.host - 1] = 0;
    if (access(keeper.settings.python, X_OK)) {
        snprintf(why, why_size, "python=%s can't be run: %s", keeper.settings.python, strerror(errno));
        return -1;
    }
    record_batch();
    if (!keeper.kept_count && keeper.namespace < 0)
        keeper.namespace = make_namespace(keeper.step.uid, keeper.step.gid);
    if (capture_make(&capture, keeper.spool, &keeper.settings, &keeper.step, packet->head.task, &task, user_name(),
                     why, why_size))
        return -1;
    if (wire_pair(pair)) {
        snprintf(why, why_size, "no socket can be made: %s", strerror(errno));
        capture_unmake(&capture, keeper.spool);
        return -1;
    }
    pid_t relay = fork();
    if (relay == 0) {
        close(pair[0]);
        be_relay(packet, &task, &capture, pair[1]);
    }
    close(pair[1]);
    if (relay < 0) {
        snprintf(why, why_size, "no process can be made: %s", strerror(errno));
        close(pair[0]);
        capture_unmake(&capture, keeper.spool);
        return -1;
    }
    capture_sync(&capture, keeper.spool);
    keeper.kept[keeper.kept_count++] =
        (struct kept){.task = packet->head.task, .relay = relay, .socket = pair[0], .capture = capture};
    return 0;
}

void take_task(const struct wire_packet *packet)
{
    char why[512] = "";
    keeper.settled++;
    if (packet->head.size != sizeof(struct wire_task) || packet->fd_count != TASK_FDS || packet->pid <= 0)
        snprintf(why, sizeof why, "a task's packet isn't whole");
    else if (keep_task(packet, why, sizeof why) == 0)
        return;
    say_format("task %u is not captured: %s", packet->head.task, why);
    if (packet->fd_count)
        (void)wire_tell(packet->fds[REPLY], WIRE_READY, packet->head.task, 0, REPLY_MS);
}

static struct kept *find_kept(uint32_t task)
{
    for (unsigned i = 0; i < keeper.kept_count; i++)
        if (keeper.kept[i].task == task && keeper.kept[i].socket >= 0)
            return &keeper.kept[i];
    return NULL;
}

/* It closes its socket, so it is as good as gone: how it ended is told before its task counts as
 * drained, as nobody may listen after that. */
static void reap_dying(const struct kept *kept)
{
    for (int ms = 0; ms < DYING_MS && kept->relay > 0; ms++) {
        reap();
        if (kept->relay > 0)
            (void)poll(NULL, 0, 1);
    }
}

void take_exit(const struct wire_packet *packet)
{
    const struct kept *kept = find_kept(packet->head.task);
    if (kept && wire_tell(kept->socket, WIRE_EXIT, packet->head.task, packet->head.value, REPLY_MS) == 0)
        return;
    /* not captured, or its relay is dead: then there is nothing to wait for */
    if (kept)
        reap_dying(kept);
    last_words_drained(keeper.socket, keeper.spool, packet->head.task);
}

void hear_relay(struct kept *kept, struct wire_packet *packet)
{
    int got = wire_receive(kept->socket, packet, 0);
    if (got < 0)
        return;
    for (unsigned i = 0; i < packet->fd_count; i++)
        close(packet->fds[i]);
    if (got && packet->head.type == WIRE_SAY) {
        say_format("task %u: %.700s", kept->task, (const char *)packet->payload);
        return;
    }
    if (got && packet->head.type == WIRE_READY) {
        capture_close(&kept->capture);
        return;
    }
    if (!got) {
        close_fd(&kept->socket);
        reap_dying(kept);
        if (kept->capture.folder >= 0 && (kept->killed || kept->relay > 0)) {
            capture_close(&kept->capture); /* the task may have been told already: the sidecar's, or the shipper's */
        } else if (kept->capture.folder >= 0) {
            say_format("task %u is not captured: its relay couldn't start", kept->task);
            capture_unmake(&kept->capture, keeper.spool);
        }
    }
    if (!kept->drained)
        last_words_drained(keeper.socket, keeper.spool, kept->task);
    kept->drained = true;
}

void reap(void)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;)
        for (unsigned i = 0; i < keeper.kept_count; i++)
            if (keeper.kept[i].relay == pid && (WIFSTOPPED(status) || WIFCONTINUED(status))) {
                keeper.kept[i].stopped = WIFSTOPPED(status);
            } else if (keeper.kept[i].relay == pid) {
                keeper.kept[i].relay = 0;
                keeper.kept[i].killed = WIFSIGNALED(status);
                if (WIFSIGNALED(status))
                    say_format("task %u: the relay was killed by signal %d; the sidecar relays on", keeper.kept[i].task,
                               WTERMSIG(status));
            }
}

void end_stopped(void)
{
    for (unsigned i = 0; i < keeper.kept_count; i++)
        if (keeper.kept[i].relay > 0 && keeper.kept[i].stopped)
            kill(keeper.kept[i].relay, SIGKILL);
}
