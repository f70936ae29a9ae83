/* logshipper-keeper: what runs beside a step's tasks, out of the job's cgroups and of slurmstepd's way.
 *
 * The plugin execs it right after its two forks, so it has an address space of its own: no lock, no heap, no thread of
 * slurmstepd's is left in it, and what follows is an ordinary program. Its fd 3 leads to slurmstepd and the step's
 * tasks. It is root, and does what root must do: record the decision, make each task's directory. For each task it
 * forks a relay, which becomes the job's user for good, starts the sidecar, and relays. It ends when slurmstepd is gone
 * and the relays are, or when no task is captured.
 *
 * Usage: logshipper-keeper SETTING=VALUE...      (with the socket as fd 3; see settings.h) */

#include "basics.h"
#include "cgroup.h"
#include "decision.h"
#include "identity.h"
#include "modes.h"
#include "output.h"
#include "privileges.h"
#include "relay.h"
#include "settings.h"
#include "spool.h"
#include "wire.h"
#include "words.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

enum { SOCKET = 3, MAX_TASKS = 1024, STEP_MS = 5000, USER_MS = 1000, REPLY_MS = 100, DYING_MS = 10 };

/* One captured task. */
struct kept {
    uint32_t task;
    pid_t relay;
    int socket; /* to the relay; -1: it is gone */
    bool drained;
    struct capture capture; /* open until the relay says that it relays */
};

struct keeper {
    struct settings settings;
    struct wire_step step;
    struct look decision;
    bool decided;
    int spool, socket; /* socket: -1: slurmstepd is gone */
    int user_pipe;     /* where the user's name comes from; -1: it is there, or won't come */
    char user[132];
    unsigned settled; /* tasks that are captured or left alone */
    unsigned kept_count;
    struct kept kept[MAX_TASKS];
};

static struct keeper keeper;

#ifdef SANITIZER_LOG
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
/* a process that is not dumpable can't be searched for leaks */
const char *__asan_default_options(void) { return "log_path=" SANITIZER_LOG ":detect_leaks=0:abort_on_error=1"; }
const char *__ubsan_default_options(void) { return "log_path=" SANITIZER_LOG ":print_stacktrace=1:abort_on_error=1"; }
#endif

/* ---- the node's log */

static void say(const char *text)
{
    char line[1024];
    snprintf(line, sizeof line, "job %u: %s", keeper.step.job_id, text);
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
    syslog(LOG_WARNING, "%s", line);
    /* slurmstepd writes it to slurmd's log when it next hears of us */
    struct wire_head head = {.type = WIRE_SAY, .size = (uint32_t)strlen(line)};
    if ((keeper.socket < 0 || wire_send(keeper.socket, head, line, NULL, 0, 0)) && keeper.spool >= 0)
        words_keep(keeper.spool, line); /* it has ended: the next one does */
}

__attribute__((format(printf, 1, 2))) static void say_format(const char *format, ...)
{
    char text[900];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    say(text);
}

/* ---- start */

static void settle_in(void)
{
    /* none of slurmstepd's fds, signals, or folders */
    close_from(SOCKET + 1);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        if (null != fd)
            (void)dup2(null, fd);
    if (null > SOCKET)
        close(null);
    (void)fcntl(SOCKET, F_SETFD, FD_CLOEXEC);
    sigset_t none;
    sigemptyset(&none);
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_DFL);
    /* what is sent to the job or by an impatient user doesn't end it */
    const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid();
    umask(077);
    if (chdir("/"))
        _exit(1);
    (void)prctl(PR_SET_NAME, "logship-keeper");
    hide_memory();
    openlog("logshipper", LOG_PID, LOG_DAEMON);
}

/* A user's name may take a directory service long, and its libraries much memory: a process of its own asks. */
static void ask_for_user(void)
{
    int ends[2];
    keeper.user_pipe = -1;
    if (pipe2(ends, O_CLOEXEC))
        return;
    pid_t child = fork();
    if (child == 0) {
        const struct passwd *found = getpwuid(keeper.step.uid);
        if (found && strlen(found->pw_name) < sizeof keeper.user)
            (void)write_all(ends[1], found->pw_name, strlen(found->pw_name));
        _exit(0);
    }
    close(ends[1]);
    if (child < 0)
        close(ends[0]);
    else
        keeper.user_pipe = ends[0];
}

/* Its number where the name can't be had in time. */
static const char *user_name(void)
{
    struct pollfd news = {.fd = keeper.user_pipe, .events = POLLIN};
    if (keeper.user_pipe >= 0) {
        ssize_t size = 0;
        if (poll(&news, 1, USER_MS) > 0)
            size = read(keeper.user_pipe, keeper.user, sizeof keeper.user - 1);
        keeper.user[size > 0 ? size : 0] = 0;
        close_fd(&keeper.user_pipe);
    }
    if (!keeper.user[0])
        snprintf(keeper.user, sizeof keeper.user, "%u", keeper.step.uid);
    return keeper.user;
}

/* ---- the decision */

/* Whether a decision stands, for the restart that is known now. Returns 0, or -1 where that can't be known. */
static int read_decision(void)
{
    int stands = decision_read(keeper.spool, keeper.step.job_id, keeper.step.restarts, &keeper.decision);
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
    if (!keeper.decided) {
        keeper.decision.state = packet->head.value >= LOOK_ABSENT && packet->head.value <= LOOK_REFUSED
                                    ? (enum look_state)packet->head.value
                                    : LOOK_UNKNOWN;
        keeper.decision.size = packet->head.size <= OPTIN_MAX_BYTES ? packet->head.size : 0;
        memcpy(keeper.decision.content, packet->payload, keeper.decision.size);
        if (decision_settle(keeper.spool, keeper.step.job_id, keeper.step.restarts, &keeper.decision)) {
            say_format("not captured: %s/.jobs can't be written: %s", keeper.settings.spool, strerror(errno));
            keeper.decision.state = LOOK_UNKNOWN; /* a later step could decide otherwise: then nothing is logged now */
        } else if (keeper.decision.state == LOOK_UNKNOWN) {
            say("not captured: ~/.logoptin couldn't be looked at within 2 s");
        }
        keeper.decided = true;
    }
    int bits = decision_bits(&keeper.decision);
    if (!(bits & WIRE_IN) || !packet->fd_count) /* the second: it found no file itself, and went on */
        keeper.settled++;
    if (packet->fd_count)
        (void)wire_tell(packet->fds[0], WIRE_ANSWER, packet->head.task, bits, REPLY_MS);
}

/* ---- a task */

enum { REPLY, TASK_FDS = 5 };

/* The relay's whole life, in its own process. Ends it. */
static void be_relay(const struct wire_packet *packet, const struct wire_task *task, struct capture *capture, int socket)
{
    static struct relay relay;
    char folder[512];
    const int *fds = packet->fds;
    int reply = fds[REPLY], mode = -1;
    for (unsigned i = 0; i < keeper.kept_count; i++) {
        close_fd(&keeper.kept[i].socket);
        capture_close(&keeper.kept[i].capture);
    }
    close_fd(&keeper.user_pipe);
    close_fd(&keeper.socket);
    (void)prctl(PR_SET_NAME, "logship-relay");
    snprintf(folder, sizeof folder, "%s/%s", keeper.settings.spool, capture->name);
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    relay_init(&relay);
    relay.keeper = socket;
    relay.task = packet->head.task;
    relay.cmd_pid = packet->pid;
    relay.cmd_pidfd = (int)syscall(SYS_pidfd_open, packet->pid, 0); /* it waits for our word: it is alive */
    if (relay.cmd_pidfd < 0)
        relay.cmd_pidfd = -1;
    int outs[2] = {fds[2], fds[4]};
    output_own_description(&outs[0]);
    output_own_description(&outs[1]);
    mode = modes_open(keeper.spool, &keeper.step);
    if (become_user(keeper.step.uid, keeper.step.gid)) {
        close_fd(&keeper.spool);
        _exit(1);
    }
    close_fd(&keeper.spool);
    relay.counters = counters_make(capture->segments);
    if (!relay.counters) {
        snprintf(folder, sizeof folder, "not captured: no counters can be made: %s", strerror(errno));
        struct wire_head head = {.type = WIRE_SAY, .size = (uint32_t)strlen(folder)};
        (void)wire_send(socket, head, folder, NULL, 0, 0);
        _exit(1);
    }
    relay_add(&relay, 1, fds[1], outs[0]);
    relay_add(&relay, 2, fds[3], outs[1]);
    struct sidecar_plan plan = {
        .python = keeper.settings.python,
        .folder = folder,
        .capture = capture,
        .content = keeper.decision.content,
        .content_size = keeper.decision.size,
        .refused = keeper.decision.state == LOOK_REFUSED,
        .tty = task->tty != 0,
        .masters = {fds[1], fds[3]},
        .outs = {outs[0], outs[1]},
        .cmd_pid = packet->pid,
        .cmd_pidfd = relay.cmd_pidfd,
        .columns = keeper.settings.columns,
        .rows = keeper.settings.rows,
        .started_ns = (uint64_t)now.tv_sec * (uint64_t)SEC_NS + (uint64_t)now.tv_nsec,
        .mode = mode,
        .stall_secs = keeper.settings.stall_secs,
    };
    int started = sidecar_start(&relay.sidecar, &plan) == 0;
    close_fd(&mode);
    capture_close(capture);
    /* from here on somebody holds the streams whoever dies: the task may have them */
    if (!started || wire_tell(reply, WIRE_READY, packet->head.task, 1, REPLY_MS)) {
        if (relay.sidecar.pid > 0)
            kill(relay.sidecar.pid, SIGKILL);
        _exit(1); /* the task didn't wait so long, or there is no process to be had: it goes on as it was */
    }
    close(reply);
    (void)wire_tell(socket, WIRE_READY, packet->head.task, 0, REPLY_MS);
    relay_run(&relay);
    _exit(0);
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
    if (capture_make(&capture, keeper.spool, &keeper.settings, &keeper.step, packet->head.task, task.host, user_name(),
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

static void take_task(const struct wire_packet *packet)
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

static void take_exit(const struct wire_packet *packet)
{
    const struct kept *kept = find_kept(packet->head.task);
    if (kept && wire_tell(kept->socket, WIRE_EXIT, packet->head.task, packet->head.value, REPLY_MS) == 0)
        return;
    /* not captured, or its relay is dead: then there is nothing to wait for */
    (void)wire_tell(keeper.socket, WIRE_DRAINED, packet->head.task, 0, 0);
}

/* ---- the course */

static void slurmstepd_gone(void)
{
    close_fd(&keeper.socket);
    for (unsigned i = 0; i < keeper.kept_count; i++)
        if (keeper.kept[i].socket >= 0)
            (void)wire_tell(keeper.kept[i].socket, WIRE_GONE, 0, 0, 0);
}

static void hear_step(struct wire_packet *packet)
{
    int got = wire_receive(keeper.socket, packet, 0);
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
    else if (packet->head.type == WIRE_PASS)
        keeper.settled++;
    else if (packet->head.type == WIRE_EXIT)
        take_exit(packet);
    else if (packet->head.type == WIRE_SAY)
        say((const char *)packet->payload);
    for (unsigned i = 0; i < packet->fd_count; i++)
        close(packet->fds[i]);
}

static void hear_relay(struct kept *kept, struct wire_packet *packet)
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
        if (kept->capture.folder >= 0) {
            say_format("task %u is not captured: its relay couldn't start", kept->task);
            capture_unmake(&kept->capture, keeper.spool);
        }
    }
    if (!kept->drained && keeper.socket >= 0)
        (void)wire_tell(keeper.socket, WIRE_DRAINED, kept->task, 0, 0);
    kept->drained = true;
}

static void reap(void)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (unsigned i = 0; i < keeper.kept_count; i++)
            if (keeper.kept[i].relay == pid) {
                keeper.kept[i].relay = 0;
                if (WIFSIGNALED(status))
                    say_format("task %u: the relay was killed by signal %d; the sidecar relays on", keeper.kept[i].task,
                               WTERMSIG(status));
            }
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
        if (poll(places, count + 1, is_one_dying() ? DYING_MS : -1) < 0)
            continue; /* EINTR */
        for (unsigned i = 0; i < count; i++)
            if (places[i + 1].revents)
                hear_relay(&keeper.kept[i], &packet);
        if (places[0].revents)
            hear_step(&packet);
        reap();
    }
}

int main(int argc, char **argv)
{
    static struct wire_packet packet;
    char why[512];
    settle_in();
    keeper.socket = SOCKET;
    keeper.spool = keeper.user_pipe = -1;
    if (settings_parse(&keeper.settings, argc - 1, argv + 1, why, sizeof why)) {
        say(why);
        return 2;
    }
    (void)cgroup_leave(say);
    if (wire_receive(SOCKET, &packet, STEP_MS) != 1 || packet.head.type != WIRE_STEP ||
        packet.head.size != sizeof keeper.step) {
        say("slurmstepd didn't say whose the step is");
        return 2;
    }
    memcpy(&keeper.step, packet.payload, sizeof keeper.step);
    keeper.step.name[sizeof keeper.step.name - 1] = 0;
    keeper.step.account[sizeof keeper.step.account - 1] = 0;
    keeper.step.partition[sizeof keeper.step.partition - 1] = 0;
    keeper.spool = spool_open(keeper.settings.spool, why, sizeof why);
    if (keeper.spool < 0) {
        say(why);
        return 1;
    }
    if (read_decision())
        return 1;
    ask_for_user();
    serve();
    return 0;
}
