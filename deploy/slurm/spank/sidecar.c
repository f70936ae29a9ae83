#include "sidecar.h"

#include "basics.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Python's start may wait: many at once, as of 64 tasks, mustn't keep relays and tasks from the
 * processor */
enum { START_NICE = 10, START_SECS = 600 };
/* once the job has ended: as much more may wait, as the job left in its terminals; then who takes
 * nothing is given up */
enum { HURRY_BYTES = 64 << 10, HURRY_SECS = 2 };
/* how much longer who hasn't begun yet may keep a job waiting than who has */
enum { START_FACTOR = 3 };
/* of one side pipe; and of all of a step's tasks, as far as the least allows */
enum { SIDE_PIPE_BYTES = 1 << 20, SIDE_PIPE_LEAST_BYTES = 64 << 10, SIDE_PIPES_BYTES = 32 << 20 };
enum { ARGUMENTS = 32, ARGUMENT_BYTES = 320 };
static const int64_t MOURNING_NS = SEC_NS;

/* ---- start */

/* Its fds stay open over the exec; all others close. */
static int keep(int fd)
{
    return fd < 0 ? 0 : fcntl(fd, F_SETFD, 0);
}

static void exec_sidecar(const struct sidecar_plan *plan, int pipe_end, int report, int content, const int hands[2])
{
    static char texts[ARGUMENTS][ARGUMENT_BYTES];
    char *argv[ARGUMENTS + 8] = {(char *)plan->python, "-P", "-s", "-m", "logshipper.slurm_sidecar"};
    char *environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONUTF8=1", NULL};
    int count = 5, k = 0;
    const struct {
        const char *key;
        long long value;
    } numbers[] = {
        {"side_pipe", pipe_end},          {"report", report},
        {"content", content},             {"refused", plan->refused},
        {"stdout", hands[0]},             {"stderr", hands[1]},
        {"cmd_pid", plan->cmd_pid},       {"cmd_pidfd", plan->cmd_pidfd},
        {"columns", plan->columns},       {"rows", plan->rows},
        {"tty", plan->tty},               {"attempt", plan->capture->attempt},
        {"relay_pid", (long)getppid()},   {"started_ns", (long long)plan->started_ns},
        {"modes", plan->modes->fd},       {"slot", plan->modes->number},
        {"awaited", plan->modes->awaited}, {"stall_secs", plan->stall_secs},
        {"journal", plan->journal},
        {"stdout_stage", plan->stages[0]}, {"stderr_stage", plan->stages[1]},
        {"task", plan->task},             {"limit_secs", plan->limit_secs},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++, k++) {
        snprintf(texts[k], ARGUMENT_BYTES, "%s=%lld", numbers[i].key, numbers[i].value);
        argv[count++] = texts[k];
    }
    snprintf(texts[k], ARGUMENT_BYTES, "job_id=%s", plan->capture->job_id);
    argv[count++] = texts[k++];
    snprintf(texts[k], ARGUMENT_BYTES, "name=%s", plan->name);
    argv[count++] = texts[k++];
    snprintf(texts[k], ARGUMENT_BYTES, "folder=%s", plan->folder);
    argv[count++] = texts[k++];
    argv[count] = NULL;
    /* a slurmstepd can't be killed for want of memory, and its children inherit that; this one can
     * be spared. The file is root's as long as our memory is hidden; there is nothing in it yet */
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0) {
        (void)write_all(score, "0", 1);
        close(score);
    }
    (void)setpriority(PRIO_PROCESS, 0, START_NICE);
    ignore_signals_of_jobs(); /* stays so over an exec; Python, too, takes long to begin */
    if (dup2(report, 2) < 0 || keep(pipe_end) || keep(report) || keep(content) || keep(hands[0]) || keep(hands[1]) ||
        keep(plan->cmd_pidfd) || keep(plan->modes->fd) || keep(plan->modes->awaited) || keep(plan->journal) ||
        keep(plan->stages[0]) || keep(plan->stages[1]))
        _exit(1);
    execve(plan->python, argv, environment);
    const char *reason = strerror(errno);
    (void)write_all(report, "failed ", 7);
    (void)write_all(report, plan->python, strlen(plan->python));
    (void)write_all(report, " can't be run: ", 15);
    (void)write_all(report, reason, strlen(reason));
    (void)write_all(report, "\n", 1);
    _exit(127);
}

static int offer(struct sidecar *sidecar, int stream, int master, int out)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    int fds[2] = {master, out};
    struct iovec part = {.iov_base = "s", .iov_len = 1};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                            .msg_controllen = sizeof control};
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sidecar->hands[stream]))
        return -1;
    memset(&control, 0, sizeof control);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(rights), fds, sizeof fds);
    return sendmsg(sidecar->hands[stream][0], &packet, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

int sidecar_offer(struct sidecar *sidecar, const int masters[2], const int outs[2])
{
    for (int stream = 0; stream < 2; stream++)
        sidecar->hands[stream][0] = sidecar->hands[stream][1] = -1;
    for (int stream = 0; stream < 2; stream++)
        if (offer(sidecar, stream, masters[stream], outs[stream]))
            return -1;
    return 0;
}

bool sidecar_take_back(struct sidecar *sidecar, unsigned stream)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    char byte;
    int fds[2], *hands = sidecar->hands[stream - 1];
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                            .msg_controllen = sizeof control};
    bool back = false;
    if (hands[1] >= 0 && recvmsg(hands[1], &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) > 0) {
        struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
        back = true;
        if (rights && rights->cmsg_len == CMSG_LEN(sizeof fds)) {
            memcpy(fds, CMSG_DATA(rights), sizeof fds);
            close(fds[0]);
            close(fds[1]);
        }
    }
    close_fd(&hands[0]);
    close_fd(&hands[1]);
    return back;
}

static int content_file(const unsigned char *content, size_t size)
{
    int fd = memfd_create("logoptin", MFD_CLOEXEC);
    if (fd >= 0 && (write_all(fd, content, size) || lseek(fd, 0, SEEK_SET) < 0))
        close_fd(&fd);
    return fd;
}

int sidecar_make_pipe(int ends[2], unsigned tasks)
{
    unsigned size = SIDE_PIPE_BYTES;
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    while (size > SIDE_PIPE_LEAST_BYTES && size > SIDE_PIPES_BYTES / (tasks ? tasks : 1))
        size /= 2;
    (void)fcntl(ends[1], F_SETPIPE_SZ, size); /* wished for; any size will do */
    return 0;
}

int sidecar_start(struct sidecar *sidecar, const struct sidecar_plan *plan)
{
    int bytes[2] = {plan->pipe[0], plan->pipe[1]}, reports[2] = {-1, -1}, content = -1, error = 0;
    sidecar->report = sidecar->rest = sidecar->pipe.fd = -1;
    sidecar->stall_secs = plan->stall_secs;
    if (pipe2(reports, O_CLOEXEC) || (content = content_file(plan->content, plan->content_size)) < 0)
        error = errno;
    if (!error && (fcntl(bytes[1], F_SETFL, O_NONBLOCK) || fcntl(reports[0], F_SETFL, O_NONBLOCK)))
        error = errno;
    if (!error) {
        sidecar->pid = fork();
        if (sidecar->pid == 0) {
            int hands[2] = {sidecar->hands[0][1], sidecar->hands[1][1]};
            exec_sidecar(plan, bytes[0], reports[1], content, hands);
        }
        error = sidecar->pid < 0 ? errno : 0;
    }
    close_fd(&bytes[0]);
    close_fd(&reports[1]);
    close_fd(&content);
    if (error) {
        close_fd(&bytes[1]);
        close_fd(&reports[0]);
        (void)sidecar_take_back(sidecar, 1);
        (void)sidecar_take_back(sidecar, 2);
        sidecar->pid = 0;
        errno = error;
        return -1;
    }
    sidecar->pipe.fd = bytes[1];
    sidecar->report = reports[0];
    sidecar->alive = true;
    return 0;
}

/* ---- loss */

static void say_trouble(struct sidecar *sidecar, const char *reason)
{
    if (!sidecar->trouble[0])
        snprintf(sidecar->trouble, sizeof sidecar->trouble, "%s", reason);
}

static void tell_loss(struct sidecar *sidecar, const char *how)
{
    char text[400];
    if (sidecar->mourned_until_ns && !sidecar->done) {
        if (sidecar->last_words[0])
            snprintf(text, sizeof text, "output is missing from the log: %s", sidecar->last_words);
        else
            snprintf(text, sizeof text, "output is missing from the log, as the logging process %s", how);
        say_trouble(sidecar, text);
    }
    sidecar->mourned_until_ns = 0;
}

static void kill_sidecar(const struct sidecar *sidecar)
{
    if (sidecar->pid > 0)
        kill(sidecar->pid, SIGKILL); /* our own child, not reaped yet */
}

static void lose(struct sidecar *sidecar, const char *how);

static void give_up(struct sidecar *sidecar, const char *what, unsigned secs)
{
    char how[64];
    snprintf(how, sizeof how, "%s %u s and was given up", what, secs);
    lose(sidecar, how);
}

static void lose(struct sidecar *sidecar, const char *how)
{
    if (!sidecar->alive)
        return;
    sidecar->alive = false; /* its end is no news */
    sidecar_read_report(sidecar);
    close_fd(&sidecar->pipe.fd);
    close_fd(&sidecar->report);
    sidecar->pipe.start = sidecar->pipe.end = sidecar->pipe.open = sidecar->pipe.held_size = 0;
    sidecar->pipe.blocked = sidecar->paused = false;
    (void)sidecar_take_back(sidecar, 1);
    (void)sidecar_take_back(sidecar, 2);
    sidecar->mourned_until_ns = now_ns() + MOURNING_NS;
    if (how) {
        kill_sidecar(sidecar);
        tell_loss(sidecar, how);
    }
}

static void reap(struct sidecar *sidecar)
{
    int status;
    char how[64] = "ended unexpectedly";
    if (sidecar->pid <= 0 || waitpid(sidecar->pid, &status, WNOHANG) != sidecar->pid)
        return;
    sidecar->pid = 0;
    lose(sidecar, NULL);
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
    tell_loss(sidecar, how);
}

/* Time in which this process didn't run (a suspended job) doesn't count: the sidecar may not have
 * run either. */
static bool has_stalled(struct sidecar *sidecar, unsigned patience)
{
    int64_t now = now_ns();
    int64_t step = now - sidecar->looked_ns;
    sidecar->still_ns += step < SEC_NS ? step : SEC_NS;
    sidecar->looked_ns = now;
    return sidecar->still_ns >= patience * SEC_NS;
}

static void begin_waiting(struct sidecar *sidecar)
{
    sidecar->still_ns = 0;
    sidecar->looked_ns = now_ns();
}

/* ---- the course */

void sidecar_closed(struct sidecar *sidecar, unsigned stream)
{
    (void)sidecar_take_back(sidecar, stream);
    if (sidecar->alive)
        side_closed(&sidecar->pipe, stream);
}

void sidecar_flush(struct sidecar *sidecar)
{
    if (!sidecar->alive)
        return;
    side_send(&sidecar->pipe, now_ns());
    if (sidecar->pipe.broken) {
        lose(sidecar, NULL);
        return;
    }
    if (sidecar->pipe.blocked && !sidecar->waits)
        begin_waiting(sidecar);
    sidecar->waits = sidecar->pipe.blocked;
    bool paused = side_waiting(&sidecar->pipe) >= BUFFER_BYTES + (sidecar->hurry ? HURRY_BYTES : 0U);
    if (paused && !sidecar->paused && !sidecar->ready)
        begin_waiting(sidecar); /* until now nobody was kept waiting by it */
    sidecar->paused = paused;
}

void sidecar_flush_if_full(struct sidecar *sidecar)
{
    if (sidecar->pipe.broken || sidecar->pipe.blocked || side_waiting(&sidecar->pipe) >= FRAME_BYTES)
        sidecar_flush(sidecar);
}

void sidecar_flush_if_due(struct sidecar *sidecar)
{
    if (sidecar->pipe.broken || sidecar->pipe.blocked || now_ns() >= sidecar->pipe.due_ns)
        sidecar_flush(sidecar);
}

void sidecar_unblock(struct sidecar *sidecar)
{
    sidecar->pipe.blocked = sidecar->waits = false;
    sidecar_flush(sidecar);
}

static void take_line(struct sidecar *sidecar, const char *line)
{
    if (strcmp(line, "done") == 0)
        sidecar->done = true;
    else if (starts_with(line, "degraded "))
        say_trouble(sidecar, line + strlen("degraded "));
    else if (starts_with(line, "failed "))
        snprintf(sidecar->last_words, sizeof sidecar->last_words, "%.250s", line + strlen("failed "));
    else if (strcmp(line, "ready") == 0)
        sidecar->ready = true;
    else /* Python's own words, of a traceback: the last line tells */
        snprintf(sidecar->last_words, sizeof sidecar->last_words, "%.250s", line);
}

void sidecar_read_report(struct sidecar *sidecar)
{
    for (;;) {
        size_t room = sizeof sidecar->said - 1 - sidecar->said_size;
        ssize_t more = sidecar->report < 0 ? -1 : read(sidecar->report, sidecar->said + sidecar->said_size, room);
        if (more <= 0) {
            if (more == 0 && sidecar->alive)
                lose(sidecar, NULL);
            return;
        }
        sidecar->still_ns = 0;
        sidecar->said_size += (size_t)more;
        char *at = sidecar->said;
        for (char *end; (end = memchr(at, '\n', sidecar->said_size)); at = end + 1) {
            *end = 0;
            sidecar->said_size -= (size_t)(end + 1 - at);
            take_line(sidecar, at);
        }
        memmove(sidecar->said, at, sidecar->said_size);
        if (sidecar->said_size == sizeof sidecar->said - 1)
            sidecar->said_size = 0; /* no line is so long */
    }
}

/* How long it may take nothing out of a full pipe. While it hasn't begun that tells nothing of it:
 * on a busy node Python takes long to start. Where it keeps nobody waiting it may take its time. */
static unsigned patience_with(const struct sidecar *sidecar)
{
    if (sidecar->hurry && (sidecar->paused || sidecar->ready))
        return sidecar->stall_secs > HURRY_SECS ? HURRY_SECS : sidecar->stall_secs;
    if (sidecar->ready)
        return sidecar->stall_secs;
    return sidecar->paused && !sidecar->pipe.ended ? START_FACTOR * sidecar->stall_secs : START_SECS;
}

void sidecar_check(struct sidecar *sidecar)
{
    reap(sidecar);
    unsigned patience = patience_with(sidecar);
    if (sidecar->alive && sidecar->pipe.blocked && has_stalled(sidecar, patience)) {
        give_up(sidecar, "took nothing for", patience);
    } else if (sidecar->mourned_until_ns && now_ns() >= sidecar->mourned_until_ns) {
        kill_sidecar(sidecar);
        tell_loss(sidecar, "ended unexpectedly");
    }
}

bool sidecar_needs_care(const struct sidecar *sidecar)
{
    return (sidecar->alive && sidecar->pipe.blocked) || sidecar->mourned_until_ns || (!sidecar->alive && sidecar->pid > 0);
}

/* ---- the end */

void sidecar_hang_up(struct sidecar *sidecar)
{
    char path[32];
    if (!sidecar->alive)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", sidecar->pipe.fd);
    sidecar->rest = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* else only its reports tell of progress */
    sidecar->pipe.ended = true;
    close_fd(&sidecar->pipe.fd);
    begin_waiting(sidecar);
}

bool sidecar_may_finish(struct sidecar *sidecar)
{
    if (sidecar->done || !sidecar->alive)
        return sidecar->mourned_until_ns != 0;
    int unread = 0;
    if (sidecar->rest >= 0 && ioctl(sidecar->rest, FIONREAD, &unread) == 0 && unread != sidecar->unread) {
        sidecar->unread = unread;
        sidecar->still_ns = 0;
    }
    /* the job is over and nobody waits: on a busy node Python may take long to start */
    unsigned patience = sidecar->ready ? sidecar->stall_secs : START_SECS;
    if (has_stalled(sidecar, patience))
        give_up(sidecar, "didn't finish within", patience);
    return sidecar->alive;
}
