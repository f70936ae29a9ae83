#include "optin.h"

#include "basics.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, INTRODUCE_MS = OPTIN_LOOK_MS, LIFE_SECS = OPTIN_BUSY_MS / 1000 + 1, GLANCE_MS = 100 };

/* From here to fork_looker: between fork and _exit in a program with threads, so async-signal-safe
 * calls alone, but for find_home. */

static void answer(int fd, char state, const char *text, const char *more)
{
    (void)write_all(fd, &state, 1); /* where nobody listens any more, nobody minds */
    (void)write_all(fd, text, strlen(text));
    (void)write_all(fd, more, strlen(more));
}

static const char *error_words(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return "Permission denied";
    case ELOOP:
        return "Too many levels of symbolic links";
    case ENOENT:
        return "No such file or directory";
    case EIO:
        return "Input/output error";
    case ESTALE:
        return "Stale file handle";
    case ENXIO:
        return "No such device or address";
    default:
        return "an unexpected error";
    }
}

static void refuse_open(int to, const char *path, int error)
{
    struct stat found;
    if (lstat(path, &found)) /* a name that can't even be looked up hasn't opted in */
        answer(to, LOOK_ABSENT, "", "");
    else if (S_ISLNK(found.st_mode))
        answer(to, LOOK_REFUSED, "is a link that leads nowhere: ", error_words(error));
    else if (S_ISSOCK(found.st_mode))
        answer(to, LOOK_REFUSED, "is not a file", "");
    else
        answer(to, LOOK_REFUSED, "can't be read: ", error_words(error));
}

static void read_content(int fd, int to)
{
    static unsigned char content[OPTIN_MAX_BYTES + 1];
    size_t size = 0;
    while (size < sizeof content) {
        ssize_t more = read(fd, content + size, sizeof content - size);
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0) {
            answer(to, LOOK_REFUSED, "can't be read: ", error_words(errno));
            return;
        }
        if (more == 0)
            break;
        size += (size_t)more;
    }
    if (size > OPTIN_MAX_BYTES) {
        answer(to, LOOK_REFUSED, "is over 64 KiB", "");
        return;
    }
    answer(to, LOOK_PRESENT, "", "");
    (void)write_all(to, content, size);
}

static void look_in_child(const char *path, int to)
{
    /* nothing of the job may be held: this process may hang for long. A FIFO or device isn't waited
     * for */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        refuse_open(to, path, errno);
        return;
    }
    struct stat found;
    if (fstat(fd, &found))
        answer(to, LOOK_REFUSED, "can't be read: ", error_words(errno));
    else if (S_ISREG(found.st_mode))
        read_content(fd, to);
    else if (S_ISDIR(found.st_mode))
        answer(to, LOOK_REFUSED, "is a folder, not a file", "");
    else if (S_ISFIFO(found.st_mode))
        answer(to, LOOK_REFUSED, "is a FIFO, not a file", "");
    else
        answer(to, LOOK_REFUSED, "is a device, not a file", "");
    close(fd);
}

/* What `~` is to a shell without HOME. May ask a directory service, and take a lock that a thread
 * of slurmstepd held at the fork: as any look that hangs. Returns 0, or -1 where there is none. */
static int find_home(char *path, size_t size)
{
    const struct passwd *found = getpwuid(getuid());
    if (!found || !found->pw_dir || found->pw_dir[0] != '/')
        return -1;
    int length = snprintf(path, size, "%s/.logoptin", found->pw_dir);
    return length > 0 && (size_t)length < size ? 0 : -1;
}

/* Once it is out of the job's cgroups nobody else ends it. */
static void limit_life(void)
{
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    (void)signal(SIGALRM, SIG_DFL);
    (void)sigprocmask(SIG_UNBLOCK, &alarms, NULL);
    (void)alarm(LIFE_SECS);
}

static int introduce(int keeper, uint32_t task)
{
    struct wire_looker looker;
    struct wire_head head = {.type = WIRE_LOOKER, .task = task, .size = sizeof looker};
    return process_started("/proc/self/stat", &looker.started) || wire_send(keeper, head, &looker, NULL, 0, INTRODUCE_MS);
}

/* path: "" where there is no home to be found it in, yet. */
static void fork_looker(char *path, int keeper, uint32_t task, int to, volatile pid_t *looker)
{
    pid_t forked = fork();
    if (forked > 0)
        *looker = forked; /* the caller's memory: we are its vfork */
    if (forked == 0) {
        limit_life();
        /* the answer goes through the lowest number, all else is closed */
        if (introduce(keeper, task) || (to != 0 && dup2(to, 0) < 0))
            _exit(1);
        close_from(1);
        if (!path[0] && find_home(path, PATH_BYTES))
            answer(0, LOOK_ABSENT, "", "");
        else
            look_in_child(path, 0);
    }
    _exit(0);
}

/* Waits for more of the looker's words; false when the time is up. waited_ms: what counts of it, so
 * far. */
static bool hear(int from, pid_t looker, int64_t deadline, int *waited_ms)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)looker);
    while (*waited_ms < OPTIN_LOOK_MS && now_ns() < deadline) {
        struct pollfd news = {.fd = from, .events = POLLIN};
        int found = poll(&news, 1, GLANCE_MS);
        if (found > 0)
            return true;
        if (found < 0 && errno != EINTR)
            return false;
        if (!process_waits_for_processor(path))
            *waited_ms += GLANCE_MS;
    }
    return false;
}

/* Reads what the looker says to its end, or until the time is up. */
static void take_answer(int from, pid_t looker, struct look *look)
{
    int64_t deadline = now_ns() + OPTIN_BUSY_MS * MS_NS;
    unsigned char state = LOOK_UNKNOWN;
    int told = 0, waited_ms = 0;
    while (hear(from, looker, deadline, &waited_ms)) {
        ssize_t more;
        if (!told) {
            more = read(from, &state, 1);
            told = more == 1;
            if (told && state == LOOK_ABSENT) { /* no more follows: its end isn't waited for */
                look->state = LOOK_ABSENT;
                return;
            }
        } else if (look->size < OPTIN_MAX_BYTES) {
            more = read(from, look->content + look->size, OPTIN_MAX_BYTES - look->size);
            look->size += more > 0 ? (size_t)more : 0;
        } else {
            more = read(from, &(char){0}, 1); /* its end */
        }
        if (more < 0 && errno != EINTR)
            return;
        if (more == 0) {
            look->state = told && state <= LOOK_REFUSED ? (enum look_state)state : LOOK_UNKNOWN;
            return;
        }
    }
}

void optin_look(const char *home, int keeper, uint32_t task, struct look *look)
{
    char path[PATH_BYTES] = "";
    int ends[2];
    look->state = LOOK_UNKNOWN;
    look->size = 0;
    int length = home[0] == '/' ? snprintf(path, sizeof path, "%s/.logoptin", home) : 0;
    if (length < 0 || (size_t)length >= sizeof path) {
        look->state = LOOK_ABSENT;
        return;
    }
    if (pipe2(ends, O_CLOEXEC))
        return;
    volatile pid_t looker = 0;
    pid_t child = vfork(); /* which only forks, and need not have a copy of our memory for that */
    if (child == 0)
        fork_looker(path, keeper, task, ends[1], &looker);
    close(ends[1]);
    if (child > 0) {
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ; /* it only forks */
        take_answer(ends[0], looker, look);
    }
    close(ends[0]);
}

static int line_says(const unsigned char *line, size_t size, const char *key, const char *const *values)
{
    size_t length = strlen(key);
    if (size <= length || memcmp(line, key, length) != 0)
        return 0;
    size_t at = length;
    while (at < size && (line[at] == ' ' || line[at] == '\t'))
        at++;
    if (at == length)
        return 0;
    size_t end = at;
    while (end < size && line[end] != ' ' && line[end] != '\t' && line[end] != '\r')
        end++;
    size_t rest = end;
    while (rest < size && (line[rest] == ' ' || line[rest] == '\t' || line[rest] == '\r'))
        rest++;
    if (rest < size && line[rest] != '#')
        return 0;
    for (; *values; values++)
        if (strlen(*values) == end - at && memcmp(line + at, *values, end - at) == 0)
            return 1;
    return 0;
}

int optin_options(const unsigned char *content, size_t size)
{
    /* YAML 1.1 has all of these, as PyYAML reads it */
    static const char *const no[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", NULL};
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", NULL};
    int options = 0;
    while (size) {
        const unsigned char *end = memchr(content, '\n', size);
        size_t length = end ? (size_t)(end - content) : size;
        if (line_says(content, length, "tty:", no))
            options |= WIRE_NO_TTY;
        if (line_says(content, length, "per_task:", yes))
            options |= WIRE_PER_TASK;
        content += end ? length + 1 : length;
        size -= end ? length + 1 : length;
    }
    return options;
}
