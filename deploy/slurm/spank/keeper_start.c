#include "keeper.h"

#include "basics.h"
#include "last_words.h"
#include "privileges.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

enum { USER_MS = 1000 };

#ifdef SANITIZER_LOG
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
/* a process that is not dumpable can't be searched for leaks */
const char *__asan_default_options(void) { return "log_path=" SANITIZER_LOG ":detect_leaks=0:abort_on_error=1"; }
const char *__ubsan_default_options(void) { return "log_path=" SANITIZER_LOG ":print_stacktrace=1:abort_on_error=1"; }
#endif

/* ---- the node's log */

void say(const char *text)
{
    char line[1024];
    snprintf(line, sizeof line, "job %u: %s", keeper.step.job_id, text);
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
    syslog(LOG_WARNING, "%s", line);
    last_words_say(keeper.socket, keeper.spool, line);
}

void say_format(const char *format, ...)
{
    char text[900];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    say(text);
}

/* ---- start */

void settle_in(void)
{
    close_from(KEEPER_SOCKET + 1);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        if (null != fd)
            (void)dup2(null, fd);
    if (null > KEEPER_SOCKET)
        close(null);
    (void)fcntl(KEEPER_SOCKET, F_SETFD, FD_CLOEXEC);
    sigset_t none;
    sigemptyset(&none);
    ignore_signals_of_jobs();
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid();
    umask(077);
    if (chdir("/"))
        _exit(1);
    (void)prctl(PR_SET_NAME, "logship-keeper");
    hide_memory();
    openlog("logshipper", LOG_PID, LOG_DAEMON);
}

/* A user's name may take a directory service long, and its libraries much memory: a process of its
 * own asks. */
void ask_for_user(void)
{
    int ends[2];
    keeper.user_pipe = -1;
    if (pipe2(ends, O_CLOEXEC))
        return;
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], KEEPER_SOCKET); /* it may hang, and mustn't hold slurmstepd's socket meanwhile */
        close_from(KEEPER_SOCKET + 1);
        const struct passwd *found = getpwuid(keeper.step.uid);
        if (found && strlen(found->pw_name) < sizeof keeper.user)
            (void)write_all(KEEPER_SOCKET, found->pw_name, strlen(found->pw_name));
        _exit(0);
    }
    close(ends[1]);
    if (child < 0)
        close(ends[0]);
    else
        keeper.user_pipe = ends[0];
}

/* Its number where the name isn't available in time. */
const char *user_name(void)
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
