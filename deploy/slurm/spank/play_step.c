/* For the tests: plays slurmstepd, with the very code of the plugin but without Slurm.
 *
 *   play-step KEEPER SETTING=VALUE... -- [WORD=VALUE...] -- CMD ARG...
 *   play-step leave-cgroups ROOT        (what cgroup.c does in a tree of its own; its exit code is what that returns)
 *   play-step move-looker ROOT PID STARTED   (likewise what looker.c does with a process that hangs)
 *
 * WORDs: uid= gid= job= step= restarts= late_restarts= (which only tasks know) array_job= array_task= tasks= home= host= name= account= nested= leave= start= end= start_secs= loadavg= report=.
 * Runs CMD as each of the tasks, in which PLAY_TASK is the rank; fds 0 to 2 are passed on. Writes to the file report=:
 * `init MICROSECONDS`, `begin RANK CAPTURED MICROSECONDS`, `exit RANK STATUS`, `drained RANK MICROSECONDS`, `say TEXT`.
 * Its exit code is that of task 0. */

#include "basics.h"
#include "cgroup.h"
#include "decision.h"
#include "jobs_folder.h"
#include "looker.h"
#include "step.h"
#include "task.h"
#include "words.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_TASKS = 256 };

static int report_fd = -1;

static int words_begin(int argc, char **argv, int from)
{
    while (from < argc && strcmp(argv[from], "--") != 0)
        from++;
    return from;
}

static const char *word(int count, char **words, const char *key, const char *otherwise)
{
    size_t length = strlen(key);
    for (int i = 0; i < count; i++)
        if (strncmp(words[i], key, length) == 0 && words[i][length] == '=')
            return words[i] + length + 1;
    return otherwise;
}

static uint32_t number(int count, char **words, const char *key, uint32_t otherwise)
{
    const char *text = word(count, words, key, NULL);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (size > 0)
        (void)write_all(report_fd, line, (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
}

static void log_line(const char *text)
{
    report("say %s\n", text);
}

static void run_task(struct task_wish *wish, int keeper, const struct wire_step *step, char **command)
{
    char rank[16];
    if (geteuid() == 0 && (setgroups(0, NULL) || setresgid(step->gid, step->gid, step->gid) ||
                           setresuid(step->uid, step->uid, step->uid)))
        _exit(126);
    int64_t began = now_ns();
    bool captured = false;
    if (keeper >= 0) {
        captured = task_begin(wish);
        close_fd(&keeper);
    }
    report("begin %u %d %lld\n", wish->task, captured, (long long)(now_ns() - began) / 1000);
    snprintf(rank, sizeof rank, "%u", wish->task);
    setenv("PLAY_TASK", rank, 1);
    execvp(command[0], command);
    _exit(127);
}

static void print_line(const char *text)
{
    puts(text);
}

int main(int argc, char **argv)
{
    static struct look look;
    struct settings settings;
    struct wire_step step = {0};
    pid_t pids[MAX_TASKS];
    int statuses[MAX_TASKS] = {0};
    char why[512];
    if (argc == 3 && strcmp(argv[1], "leave-cgroups") == 0)
        return cgroup_leave(argv[2], 0, print_line);
    if (argc == 5 && strcmp(argv[1], "move-looker") == 0) {
        looker_move(argv[2], (pid_t)strtol(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), print_line);
        return 0;
    }
    int first = words_begin(argc, argv, 2), second = words_begin(argc, argv, first + 1);
    if (second + 1 >= argc)
        return 2;
    char **words = argv + first + 1;
    int count = second - first - 1;
    report_fd = open(word(count, words, "report", "/dev/null"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (settings_parse(&settings, first - 2, argv + 2, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 2;
    }
    step.uid = number(count, words, "uid", getuid());
    step.gid = number(count, words, "gid", getgid());
    step.job_id = number(count, words, "job", 4711);
    step.step_id = number(count, words, "step", SLURM_BATCH_SCRIPT);
    step.restarts = number(count, words, "restarts", 0);
    step.array_job_id = number(count, words, "array_job", 0);
    step.array_task_id = number(count, words, "array_task", 0);
    step.local_tasks = number(count, words, "tasks", 1);
    snprintf(step.name, sizeof step.name, "%s", word(count, words, "name", "played"));
    snprintf(step.account, sizeof step.account, "%s", word(count, words, "account", ""));
    int keeper = -1, bits = -1;
    int64_t began = now_ns();
    int spool = spool_open(settings.spool, why, sizeof why);
    bool late = word(count, words, "late_restarts", NULL);
    if (spool < 0) {
        log_line(why);
    } else {
        words_take(spool, log_line);
        jobs_after_boot(spool);
        step_learn_record(spool, &step);
        late = late && !step.recorded;
        if (decision_find(spool, step.job_id, step.uid, step.restarts, &look) > 0)
            bits = decision_bits(&look);
        close(spool);
        if (late || bits < 0 || bits & WIRE_IN)
            keeper = step_start_keeper(argv[1], first - 2, argv + 2, &step, why, sizeof why);
        if ((late || bits != 0) && keeper < 0)
            log_line(why);
    }
    report("init %lld\n", (long long)(now_ns() - began) / 1000);
    if (step.local_tasks > MAX_TASKS)
        return 2;
    for (uint32_t task = 0; task < step.local_tasks; task++) {
        struct task_wish wish = {
            .keeper = keeper,
            .task = task,
            .restarts = late ? number(count, words, "late_restarts", 0) : 0,
            .bits = late ? -1 : bits,
            .leave = number(count, words, "leave", 0) != 0,
            .nested = number(count, words, "nested", 0) != 0,
            .home = word(count, words, "home", "/nonexistent"),
            .host = word(count, words, "host", "n1"),
            .limit_secs = task_limit_secs(word(count, words, "start", ""), word(count, words, "end", "")),
            .columns = settings.columns,
            .rows = settings.rows,
            .start_secs = number(count, words, "start_secs", 100), /* valgrind's keepers take their time */
            .loadavg = word(count, words, "loadavg", "/dev/null"),
        };
        pids[task] = fork();
        if (pids[task] == 0)
            run_task(&wish, keeper, &step, argv + second + 1);
    }
    /* like slurmstepd: the task's own output is a pipe of its, which only tasks hold */
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    (void)open("/dev/null", O_RDWR);
    for (uint32_t left = step.local_tasks; left;) {
        int status;
        pid_t pid = wait(&status);
        if (pid < 0)
            break;
        for (uint32_t task = 0; task < step.local_tasks; task++) {
            if (pids[task] != pid)
                continue;
            left--;
            statuses[task] = status;
            report("exit %u %d\n", task, status);
            began = now_ns();
            step_task_ended(&keeper, task, status, settings.drain_secs, log_line);
            report("drained %u %lld\n", task, (long long)(now_ns() - began) / 1000);
        }
    }
    if (keeper >= 0)
        step_take_words(keeper, log_line);
    if (WIFSIGNALED(statuses[0])) {
        signal(WTERMSIG(statuses[0]), SIG_DFL);
        raise(WTERMSIG(statuses[0]));
    }
    return WEXITSTATUS(statuses[0]);
}
