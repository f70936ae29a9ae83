#include "step.h"

#include "basics.h"
#include "job_record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <slurm/slurm.h> /* numbers of special steps only */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEEPER_FD = 3, MAX_WORDS = 32, SEND_MS = 200 };

static struct wire_packet packet; /* slurmstepd calls plugins from one thread */
static char program[PATH_MAX];    /* the keeper's */

/* Between vfork and exec only async-signal-safe calls are made: slurmstepd has threads, which may
 * hold any lock at this moment. Its memory is lent, not copied: that would be a good part of what a
 * job that isn't captured waits for. */
static void exec_keeper(const char *keeper, char *const argv[], int socket)
{
    static char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", NULL};
    if (socket != KEEPER_FD && dup2(socket, KEEPER_FD) < 0)
        _exit(1);
    if (fcntl(KEEPER_FD, F_SETFD, 0))
        _exit(1);
    execve(keeper, argv, environment);
    (void)wire_tell(KEEPER_FD, WIRE_NO_EXEC, 0, errno, 0);
    _exit(127);
}

/* In a child that ends right after, so that slurmstepd, which waits for any child, has none that it
 * doesn't know. */
static void fork_keeper(const char *keeper, char *const argv[], int socket)
{
    pid_t pid = vfork();
    if (pid == 0)
        exec_keeper(keeper, argv, socket);
    _exit(pid < 0);
}

/* As wire_receive. That the other side went without having read all that was sent to it doesn't
 * hide what it said. */
static int listen_for(int socket, int wait_ms)
{
    int got = wire_receive(socket, &packet, wait_ms);
    if (got < 0 && errno == ECONNRESET)
        got = wire_receive(socket, &packet, wait_ms);
    for (unsigned i = 0; got == 1 && i < packet.fd_count; i++)
        close(packet.fds[i]);
    return got;
}

/* A packet that came: what is for the node's log. */
static void take_word(void (*log)(const char *text))
{
    char text[PATH_MAX + 128];
    if (packet.head.type == WIRE_SAY) {
        log((const char *)packet.payload);
    } else if (packet.head.type == WIRE_NO_EXEC) {
        snprintf(text, sizeof text, "%s doesn't run: %s", program, strerror(packet.head.value));
        log(text);
    }
}

int step_start_keeper(const char *keeper, int argc, char **argv, const struct wire_step *step, char *why, size_t why_size)
{
    char *words[MAX_WORDS + 2] = {"logshipper-keeper"};
    int ends[2];
    if (argc > MAX_WORDS) {
        snprintf(why, why_size, "too many arguments");
        return -1;
    }
    if (argc > 0)
        memcpy(words + 1, argv, (size_t)argc * sizeof *argv);
    if (wire_pair(ends)) {
        snprintf(why, why_size, "no socket can be made: %s", strerror(errno));
        return -1;
    }
    pid_t child = vfork();
    if (child == 0)
        fork_keeper(keeper, words, ends[1]);
    int error = errno;
    close_fd(&ends[1]);
    int status = 0;
    if (child > 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ; /* it only forks; where SIGCHLD is ignored it is gone already */
    struct wire_head head = {.type = WIRE_STEP, .size = sizeof *step};
    snprintf(program, sizeof program, "%s", keeper);
    if (child < 0 || status) {
        snprintf(why, why_size, "no process can be made: %s", strerror(child < 0 ? error : EAGAIN));
    } else if (wire_send(ends[0], head, step, NULL, 0, SEND_MS)) {
        error = errno;
        snprintf(why, why_size, "%s doesn't run: %s", keeper, strerror(listen_for(ends[0], 0) == 1 ? packet.head.value : error));
    } else {
        return ends[0]; /* that it isn't available may show later: take_word */
    }
    close_fd(&ends[0]);
    return -1;
}

void step_learn_record(int spool, struct wire_step *step)
{
    struct wire_step told = *step;
    told.recorded = job_record_apply(spool, &told);
    if (told.recorded || told.step_id != SLURM_BATCH_SCRIPT)
        *step = told;
}

void step_task_ended(int *socket, uint32_t task, int wait_status, unsigned drain_secs, void (*log)(const char *text))
{
    int64_t deadline = now_ns() + drain_secs * SEC_NS;
    if (*socket < 0)
        return;
    if (wire_tell(*socket, WIRE_EXIT, task, wait_status, SEND_MS)) {
        if (errno != EPIPE && errno != ECONNRESET)
            return;
        deadline = 0; /* its last words may still be there */
    }
    for (;;) {
        int got = listen_for(*socket, deadline ? ms_until(deadline) : 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EBADMSG)) {
            close_fd(socket);
            return;
        }
        if (got < 0 && errno == EAGAIN) {
            if (!deadline)
                close_fd(socket);
            return;
        }
        if (got < 0)
            continue;
        take_word(log);
        if (packet.head.type == WIRE_DRAINED && packet.head.task == task)
            return;
    }
}

void step_take_words(int socket, void (*log)(const char *text))
{
    while (listen_for(socket, 0) == 1)
        take_word(log);
}
