#include "jobs_folder.h"

#include "basics.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JOBS ".jobs"
#define BOOT ".boot" /* the boot in which the files were made; its time: when they were last swept */
enum { FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
enum { BOOT_BYTES = 36, KEPT_DAYS = 60, DAY_SECS = 24 * 3600 };
/* files looked at: at a job's end, which can try its own ones' names besides; and once a day, or
 * after a reboot. The second is what a thousand jobs at once have here that all forge as many
 * restarts as they may; that takes ten seconds */
enum { MOST_LOOKED_AT = 20000, MOST_SWEPT = 2000000 };

struct job_end {
    uint32_t job_id, uid;
    long restarts;
    bool next_is_recorded;
};

static size_t read_small(int folder, const char *path, char *text, size_t size)
{
    int fd = openat(folder, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, size);
    close_fd(&fd);
    return got > 0 ? (size_t)got : 0;
}

static bool this_boot(char boot[BOOT_BYTES])
{
    return read_small(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, BOOT_BYTES) == BOOT_BYTES;
}

static void note_boot(int folder)
{
    char boot[BOOT_BYTES];
    int fd = this_boot(boot) ? openat(folder, BOOT, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    if (fd >= 0)
        (void)write_all(fd, boot, sizeof boot);
    close_fd(&fd);
}

int jobs_make(int spool)
{
    if (mkdirat(spool, JOBS, 0700))
        return errno == EEXIST ? 0 : -1;
    int folder = openat(spool, JOBS, FOLDER_FLAGS);
    if (folder >= 0)
        note_boot(folder);
    close_fd(&folder);
    return 0;
}

static int fill(int folder, const char *name, const char *line, const void *rest, size_t rest_size)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    int failed = write_all(fd, line, strlen(line)) || write_all(fd, rest, rest_size);
    int error = errno;
    if (close(fd) && !failed) {
        failed = 1;
        error = errno;
    }
    errno = error;
    return failed ? -1 : 0;
}

int jobs_write(int spool, const char *name, const char *line, const void *rest, size_t rest_size, bool replace)
{
    char making[96];
    int folder = jobs_make(spool) ? -1 : openat(spool, JOBS, FOLDER_FLAGS);
    if (folder < 0)
        return -1;
    snprintf(making, sizeof making, ".new-%s.%ld", name, (long)getpid());
    unlinkat(folder, making, 0); /* of a process with our pid, which died */
    /* linked, not renamed: the first one counts; never is one seen half written */
    int failed = fill(folder, making, line, rest, rest_size);
    if (!failed)
        failed = replace ? renameat(folder, making, folder, name) : linkat(folder, making, folder, name, 0);
    int error = errno;
    unlinkat(folder, making, 0);
    close(folder);
    errno = error;
    return failed;
}

/* Removes what `is_stale` says, of the first `most` files. Returns whether these are all. */
static bool remove_stale(int jobs, int most, bool (*is_stale)(int jobs, const char *name, const void *with),
                         const void *with)
{
    int fd = openat(jobs, ".", FOLDER_FLAGS);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        close_fd(&fd);
        return false;
    }
    struct dirent *entry = NULL;
    for (int looked = 0; looked < most && (entry = readdir(folder)); looked++)
        if (is_stale(jobs, entry->d_name, with))
            unlinkat(jobs, entry->d_name, 0);
    closedir(folder);
    return !entry;
}

static bool is_older(int jobs, const char *name, const void *with)
{
    struct stat found;
    return strcmp(name, BOOT) != 0 && fstatat(jobs, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found.st_mode) &&
           found.st_mtime < *(const time_t *)with;
}

static bool is_over(const struct job_end *job, long run)
{
    return job->restarts < 0 || run != job->restarts + 1;
}

static bool is_digit(char character)
{
    return character >= '0' && character <= '9';
}

static bool is_of_job(int jobs, const char *name, const void *with)
{
    const struct job_end *job = with;
    char own[32], *end = NULL;
    (void)jobs;
    if (!is_digit(name[0]) || strtoul(name, &end, 10) != job->job_id || *end != '.')
        return false;
    int size = snprintf(own, sizeof own, "%u.%u.", job->job_id, job->uid);
    if (!starts_with(name, own))
        return true;
    return is_digit(name[size]) ? is_over(job, strtol(name + size, NULL, 10)) : !job->next_is_recorded;
}

static void remove_named(int jobs, const struct job_end *job, const char *rest)
{
    char name[64];
    snprintf(name, sizeof name, "%u.%u.%s", job->job_id, job->uid, rest);
    unlinkat(jobs, name, 0);
}

static void remove_run(int jobs, const struct job_end *job, long run)
{
    char rest[32];
    snprintf(rest, sizeof rest, "%ld", run);
    remove_named(jobs, job, rest);
    snprintf(rest, sizeof rest, "%ld.modes", run);
    remove_named(jobs, job, rest);
}

static void remove_by_name(int jobs, const struct job_end *job)
{
    for (long run = 0; run <= MOST_RESTARTS; run++)
        if (is_over(job, run))
            remove_run(jobs, job, run);
    if (job->restarts > MOST_RESTARTS)
        remove_run(jobs, job, job->restarts);
    if (!job->next_is_recorded)
        remove_named(jobs, job, "slurm");
}

void jobs_after_boot(int spool)
{
    char boot[BOOT_BYTES], noted[BOOT_BYTES + 1];
    int folder = openat(spool, JOBS, FOLDER_FLAGS);
    if (folder < 0)
        return;
    size_t size = read_small(folder, BOOT, noted, sizeof noted);
    if (this_boot(boot) && (size != sizeof boot || memcmp(noted, boot, sizeof boot) != 0) &&
        flock(folder, LOCK_EX | LOCK_NB) == 0) {
        /* nobody else is at it; has somebody been, meanwhile? */
        size = read_small(folder, BOOT, noted, sizeof noted);
        const time_t before = time(NULL) - 1; /* what is made now stays */
        if (size == sizeof boot && memcmp(noted, boot, sizeof boot) != 0)
            (void)remove_stale(folder, MOST_SWEPT, is_older, &before);
        note_boot(folder);
    }
    close(folder);
}

void jobs_forget(int spool, uint32_t job_id, uint32_t uid, long restarts, bool next_is_recorded)
{
    const struct job_end job = {job_id, uid, restarts, next_is_recorded};
    int folder = openat(spool, JOBS, FOLDER_FLAGS);
    if (folder >= 0 && !remove_stale(folder, MOST_LOOKED_AT, is_of_job, &job))
        remove_by_name(folder, &job);
    close_fd(&folder);
}

void jobs_sweep(int spool)
{
    struct stat last;
    int folder = openat(spool, JOBS, FOLDER_FLAGS);
    const time_t now = time(NULL), before = now - (time_t)KEPT_DAYS * DAY_SECS;
    if (folder >= 0 && fstatat(folder, BOOT, &last, AT_SYMLINK_NOFOLLOW) == 0 && last.st_mtime < now - DAY_SECS) {
        (void)utimensat(folder, BOOT, NULL, AT_SYMLINK_NOFOLLOW);
        (void)remove_stale(folder, MOST_SWEPT, is_older, &before);
    }
    close_fd(&folder);
}
