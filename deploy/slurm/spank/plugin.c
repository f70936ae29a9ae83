/* The SPANK plugin: what Slurm calls, and nothing else.
 *
 * slurmstepd (root)  init_post_opt: does a decision stand? Starts the keeper (step.c). task_exit: waits until drained.
 * task (the user)    task_init: looks at ~/.logoptin, makes ptys, hands masters and outputs over (task.c, optin.c, ends.c).
 * job's epilog (root) forgets what was kept of the job on this node (jobs_folder.c).
 * keeper (root)      records the decision, makes the captures' directories, forks the relays (keeper.c, spool.c, ...).
 * relay (the user)   one for each task: starts the sidecar (sidecar.c), relays (relay.c, channel.c, output.c).
 *
 * It never fails: whatever goes wrong, every callback returns ESPANK_SUCCESS and the task runs as it would without it.
 * What is to be told goes to slurmd's log at level info, as slurmstepd prints errors into the job's own output. */

#include "basics.h"
#include "decision.h"
#include "job_record.h"
#include "jobs_folder.h"
#include "settings.h"
#include "step.h"
#include "task.h"
#include "wire.h"
#include "words.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char plugin_name[], plugin_type[];
EXPORT extern const unsigned int plugin_version, spank_plugin_version;
EXPORT spank_f slurm_spank_init_post_opt, slurm_spank_task_init, slurm_spank_task_exit, slurm_spank_exit;
EXPORT spank_f slurm_spank_job_epilog;

SPANK_PLUGIN(logshipper, 1)

#define MARKER "LOGSHIPPER_JOB_ID"
#define CAPTURED "LOGSHIPPER_CAPTURED"
#define SLURM_MARKER "SLURM_LOGSHIPPER_JOB_ID" /* `srun --export=NONE` passes on what begins with SLURM alone */

static struct {
    struct settings settings;
    struct wire_step step;
    int keeper; /* socket; -1: nothing is captured in this step */
    int bits;   /* as struct task_wish has them */
    bool leave, nested;
    bool drain_failed; /* a task's output wasn't delivered in time: the next ones aren't waited for as long */
} state = {.keeper = -1};

static void log_line(const char *text)
{
    slurm_info("logshipper: %s", text);
}

static void log_earlier(const char *text)
{
    slurm_info("logshipper: of an earlier step: %s", text);
}

static uint32_t number(spank_t spank, spank_item_t item)
{
    uint32_t value = 0;
    if (spank_get_item(spank, item, &value) != ESPANK_SUCCESS || value == NO_VAL || value == INFINITE)
        return 0;
    return value;
}

static void text(spank_t spank, const char *name, char *value, size_t size)
{
    if (spank_getenv(spank, name, value, (int)size) != ESPANK_SUCCESS)
        value[0] = 0;
    value[size - 1] = 0;
}

/* How often the job restarted, where no record tells. Slurm's item is there, but always 0 (22.05 to
 * 26.05). Its variable is right, but comes with the user's environment: of a step from the start,
 * of a batch script only in the task. So the larger one counts. Who forges the variable spoils the
 * attempts of its own job alone. A job that a restarted job submitted inherits that one's count
 * until it has one of its own: its first run is called by a later attempt, and may share that with
 * a later run. */
static uint32_t restarts_of(spank_t spank)
{
    char told[32], *end = NULL;
    uint32_t item = number(spank, S_SLURM_RESTART_COUNT);
    text(spank, "SLURM_RESTART_COUNT", told, sizeof told);
    unsigned long count = told[0] >= '0' && told[0] <= '9' ? strtoul(told, &end, 10) : 0;
    if (!end || *end || count > MOST_RESTARTS)
        count = 0;
    return count > item ? (uint32_t)count : item;
}

enum { MOST_NODES = 1000000 };

/* How many nodes the job has. Slurm's item counts the step's, of a batch script one. The variable
 * is the job's, and who forges it spoils how much its own job weighs. */
static uint32_t nodes_of(spank_t spank)
{
    char told[32], *end = NULL;
    uint32_t item = number(spank, S_JOB_NNODES);
    text(spank, "SLURM_JOB_NUM_NODES", told, sizeof told);
    unsigned long nodes = told[0] >= '0' && told[0] <= '9' ? strtoul(told, &end, 10) : 0;
    if (!end || *end || nodes > MOST_NODES)
        nodes = 0;
    return nodes > item ? (uint32_t)nodes : item;
}

/* Whose the step is. Numbers are slurmstepd's own; name, account and partition are those of its
 * environment, which of a batch script slurmd has made, of a step the user. */
static int learn_step(spank_t spank, struct wire_step *step)
{
    uid_t uid = 0;
    gid_t gid = 0;
    memset(step, 0, sizeof *step);
    if (spank_get_item(spank, S_JOB_ID, &step->job_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &step->step_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_GID, &gid) != ESPANK_SUCCESS)
        return -1;
    step->uid = uid;
    step->gid = gid;
    step->restarts = restarts_of(spank);
    step->array_job_id = number(spank, S_JOB_ARRAY_ID);
    step->array_task_id = number(spank, S_JOB_ARRAY_TASK_ID);
    step->local_tasks = number(spank, S_JOB_LOCAL_TASK_COUNT);
    step->nodes = nodes_of(spank);
    text(spank, "SLURM_JOB_NAME", step->name, sizeof step->name);
    text(spank, "SLURM_JOB_ACCOUNT", step->account, sizeof step->account);
    text(spank, "SLURM_JOB_PARTITION", step->partition, sizeof step->partition);
    return 0;
}

static bool marks(spank_t spank, const char *marker, const struct wire_step *step)
{
    char marked[64], own[32], leader[32];
    text(spank, marker, marked, sizeof marked);
    snprintf(own, sizeof own, "%u", step->job_id);
    text(spank, "SLURM_JOB_ID", leader, sizeof leader); /* of a heterogeneous job: its first component's */
    return marked[0] && (strcmp(marked, own) == 0 || strcmp(marked, leader) == 0);
}

/* Whether the step's output goes through a capture of the same job: its environment is that of a
 * captured batch (or of `logshipper run`). A job that was submitted from a captured one has the
 * markers too, but of another job. */
static bool is_nested(spank_t spank, const struct wire_step *step)
{
    return step->step_id != SLURM_BATCH_SCRIPT && (marks(spank, MARKER, step) || marks(spank, SLURM_MARKER, step));
}

/* logshipper-keeper lies next to this very file, unless keeper= says otherwise. */
static int keeper_path(char *path, size_t size)
{
    Dl_info found;
    if (state.settings.keeper)
        return (size_t)snprintf(path, size, "%s", state.settings.keeper) < size ? 0 : -1;
    if (!dladdr((void *)&state, &found) || !found.dli_fname)
        return -1;
    const char *slash = strrchr(found.dli_fname, '/');
    size_t length = slash ? (size_t)(slash - found.dli_fname) : 0;
    return slash && (size_t)snprintf(path, size, "%.*s/logshipper-keeper", (int)length, found.dli_fname) < size ? 0 : -1;
}

/* In slurmstepd, as root, before tasks are forked. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    static struct look look;
    char why[512], keeper[PATH_MAX];
    if (spank_remote(spank) != 1 || learn_step(spank, &state.step))
        return ESPANK_SUCCESS;
    if (state.step.step_id == SLURM_EXTERN_CONT || state.step.step_id == SLURM_PENDING_STEP || !state.step.local_tasks)
        return ESPANK_SUCCESS;
    if (settings_parse(&state.settings, argc, argv, why, sizeof why)) {
        log_line(why);
        return ESPANK_SUCCESS;
    }
    int spool = spool_open(state.settings.spool, why, sizeof why);
    if (spool < 0) {
        log_line(why);
        return ESPANK_SUCCESS;
    }
    words_take(spool, log_earlier);
    jobs_after_boot(spool);
    step_learn_record(spool, &state.step);
    /* a batch script is its job's first step, and without a record only its task knows how often
     * the job restarted */
    int stands = state.step.step_id == SLURM_BATCH_SCRIPT && !state.step.recorded
                     ? 0
                     : decision_find(spool, state.step.job_id, state.step.uid, state.step.restarts, &look);
    close(spool);
    state.bits = stands > 0 ? decision_bits(&look) : -1;
    state.nested = is_nested(spank, &state.step);
    state.leave = state.step.step_id == SLURM_INTERACTIVE_STEP;
    if (stands < 0) {
        log_line("not captured: the job's decision can't be read");
        return ESPANK_SUCCESS;
    }
    bool nothing = state.leave || (state.nested && !(state.bits & WIRE_PER_TASK));
    if (stands > 0 && (!(state.bits & WIRE_IN) || nothing))
        return ESPANK_SUCCESS; /* nobody opted in, or nothing is to be captured here: not touched at all */
    if (keeper_path(keeper, sizeof keeper)) {
        log_line("the path of logshipper-keeper is too long");
        return ESPANK_SUCCESS;
    }
    state.keeper = step_start_keeper(keeper, argc, argv, &state.step, why, sizeof why);
    if (state.keeper < 0)
        log_line(why);
    return ESPANK_SUCCESS;
}

/* Tells `logshipper run` in the task that what goes to these is captured already
 * (logshipper/process/nesting.py). */
static void mark_streams(spank_t spank)
{
    char marks[128];
    struct stat out, err;
    if (fstat(STDOUT_FILENO, &out) || fstat(STDERR_FILENO, &err))
        return;
    snprintf(marks, sizeof marks, "%ju:%ju %ju:%ju", (uintmax_t)out.st_dev, (uintmax_t)out.st_ino, (uintmax_t)err.st_dev,
             (uintmax_t)err.st_ino);
    (void)spank_setenv(spank, CAPTURED, marks, 1);
}

/* In a task, as the user, with its real fds 0 to 2, right before TaskProlog and exec. */
int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    char home[PATH_MAX], host[256], job_id[16], start[32], end[32];
    (void)argc;
    (void)argv;
    if (state.keeper < 0)
        return ESPANK_SUCCESS;
    uint32_t task = 0;
    text(spank, "HOME", home, sizeof home);
    /* set by slurmstepd, after the user's environment; before 23.02 it has no times */
    text(spank, "SLURMD_NODENAME", host, sizeof host);
    text(spank, "SLURM_JOB_START_TIME", start, sizeof start);
    text(spank, "SLURM_JOB_END_TIME", end, sizeof end);
    if (spank_get_item(spank, S_TASK_GLOBAL_ID, &task) == ESPANK_SUCCESS && geteuid() == state.step.uid) {
        uint32_t restarts = restarts_of(spank);
        bool news = restarts > state.step.restarts && state.step.step_id == SLURM_BATCH_SCRIPT && !state.step.recorded;
        struct task_wish wish = {
            .keeper = state.keeper,
            .task = task,
            .restarts = news ? restarts : 0,
            .bits = state.bits,
            .leave = state.leave,
            .nested = state.nested,
            .home = home,
            .host = host,
            .limit_secs = task_limit_secs(start, end),
            .columns = state.settings.columns,
            .rows = state.settings.rows,
            .start_secs = state.settings.start_secs,
            .loadavg = "/proc/loadavg",
        };
        if (task_begin(&wish)) {
            snprintf(job_id, sizeof job_id, "%u", state.step.job_id);
            (void)spank_setenv(spank, MARKER, job_id, 1);
            (void)spank_setenv(spank, SLURM_MARKER, job_id, 1);
            mark_streams(spank);
        }
    }
    close_fd(&state.keeper);
    return ESPANK_SUCCESS;
}

/* In slurmstepd, once for each task that ended. */
int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
    uint32_t task = 0;
    int status = 0;
    (void)argc;
    (void)argv;
    if (state.keeper < 0 || spank_get_item(spank, S_TASK_GLOBAL_ID, &task) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS)
        return ESPANK_SUCCESS;
    /* tasks end one after the other here: where the output of one is stuck, the next ones drained
     * meanwhile, or won't */
    unsigned wait_secs = state.drain_failed ? 0 : state.settings.drain_secs;
    int64_t began = now_ns();
    step_task_ended(&state.keeper, task, status, wait_secs, log_line);
    state.drain_failed = state.drain_failed || now_ns() - began >= state.settings.drain_secs * SEC_NS;
    return ESPANK_SUCCESS;
}

/* At the end of slurmstepd: the keeper's last words. */
int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (state.keeper >= 0 && spank_remote(spank) == 1)
        step_take_words(state.keeper, log_line);
    close_fd(&state.keeper);
    return ESPANK_SUCCESS;
}

/* In a process of slurmd's, as root, when the job has ended on this node. Its environment is
 * slurmd's alone. */
int slurm_spank_job_epilog(spank_t spank, int argc, char **argv)
{
    struct settings settings;
    struct wire_step step = {0};
    uid_t uid = 0;
    char why[512];
    if (spank_get_item(spank, S_JOB_ID, &step.job_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
        settings_parse(&settings, argc, argv, why, sizeof why))
        return ESPANK_SUCCESS; /* each step says what is wrong there */
    int spool = spool_open(settings.spool, why, sizeof why);
    if (spool < 0)
        return ESPANK_SUCCESS;
    step.uid = uid;
    long restarts = job_restarts();
    bool later = job_record_apply(spool, &step) && restarts >= 0 && step.restarts > restarts;
    jobs_forget(spool, step.job_id, step.uid, restarts, later);
    jobs_sweep(spool);
    close(spool);
    return ESPANK_SUCCESS;
}
