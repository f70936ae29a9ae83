#include "spool.h"

#include "basics.h"
#include "fault_points.h"
#include "identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAKING ".new-"
enum { LOCK_MS = 1500, IDENTITY_BYTES = 8192, COUNTERS_BYTES = 72, RANDOM_CHARS = 8 };
enum { FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

_Static_assert(sizeof(struct counters) == COUNTERS_BYTES, "the layout of logshipper/spool/captures.py");

/* A letter, then letters and digits, as short_id in logshipper/spool/captures.py; as many as
 * NAME_CHARS there. */
static int random_name(char *name)
{
    static const char alphabet[] = "abcdefghjkmnpqrstvwxyz23456789";
    unsigned char bytes[RANDOM_CHARS];
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != (ssize_t)sizeof bytes)
        return -1;
    for (int i = 0; i < RANDOM_CHARS; i++)
        name[i] = alphabet[bytes[i] % (i ? sizeof alphabet - 1 : sizeof alphabet - 1 - 8)];
    name[RANDOM_CHARS] = 0;
    return 0;
}

static int take_lock(int spool)
{
    int fd = openat(spool, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    int64_t deadline = now_ns() + LOCK_MS * MS_NS;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        int error = errno;
        if ((error != EWOULDBLOCK && error != EINTR) || !ms_until(deadline)) {
            close(fd);
            errno = error;
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 2 * MS_NS}, NULL); /* a maker holds it for a millisecond or two */
    }
    return fd;
}

static void remove_making(int spool, const char *name)
{
    char path[288];
    const char *const parts[] = {"segments", "identity.json", ""};
    for (int i = 0; i < 3; i++) {
        int size = snprintf(path, sizeof path, i < 2 ? "%s/%s" : "%s%s", name, parts[i]);
        if (size > 0 && (size_t)size < sizeof path)
            unlinkat(spool, path, i == 1 ? 0 : AT_REMOVEDIR);
    }
}

/* How many captures a user has in the spool; removes what a maker that died left half made (we hold
 * the lock). */
static long count_captures(int spool, uint32_t uid)
{
    int fd = openat(spool, ".", FOLDER_FLAGS);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    long count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (starts_with(entry->d_name, MAKING)) {
            remove_making(spool, entry->d_name);
        } else if (entry->d_name[0] != '.') {
            char path[288];
            struct stat found;
            int size = snprintf(path, sizeof path, "%s/segments", entry->d_name);
            if (size > 0 && (size_t)size < sizeof path && !fstatat(spool, path, &found, AT_SYMLINK_NOFOLLOW))
                count += found.st_uid == uid;
        }
    }
    closedir(folder);
    return count;
}

/* Nobody but us gets into the directory before its own mode is set, the last step. */
static int fill(struct capture *capture, int spool, const char *making, const char *text, size_t size,
                const struct wire_step *step)
{
    capture->folder = openat(spool, making, FOLDER_FLAGS);
    if (capture->folder < 0)
        return -1;
    capture->identity = openat(capture->folder, "identity.json", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (capture->identity < 0 || write_all(capture->identity, text, size))
        return -1;
    if (mkdirat(capture->folder, "segments", 0700))
        return -1;
    capture->segments = openat(capture->folder, "segments", FOLDER_FLAGS);
    if (capture->segments < 0 || fchmod(capture->segments, 0700))
        return -1;
    if (geteuid() == 0 && fchown(capture->segments, step->uid, step->gid))
        return -1;
    return fchmod(capture->folder, 0711);
}

int capture_make(struct capture *capture, int spool, const struct settings *settings, const struct wire_step *step,
                 uint32_t task, const struct wire_task *facts, const char *user, char *why, size_t why_size)
{
    char making[sizeof capture->name + sizeof MAKING], text[IDENTITY_BYTES], chars[RANDOM_CHARS + 1];
    *capture = (struct capture){.folder = -1, .identity = -1, .segments = -1, .attempt = step->restarts + 1};
    snprintf(capture->job_id, sizeof capture->job_id, "%u", step->job_id);
    size_t size = identity_write(text, sizeof text, settings->cluster, facts->host, user, step, task, facts->limit_secs);
    if (!size || random_name(chars)) {
        snprintf(why, why_size, "no identity could be made");
        return -1;
    }
    snprintf(capture->name, sizeof capture->name, "%s@%u.%s", capture->job_id, capture->attempt, chars);
    snprintf(making, sizeof making, MAKING "%s", capture->name);
    int lock = take_lock(spool);
    if (lock < 0) {
        snprintf(why, why_size, "%s/.lock isn't available: %s", settings->spool, strerror(errno));
        return -1;
    }
    long count = count_captures(spool, step->uid);
    if (count >= (long)settings->max_captures) {
        snprintf(why, why_size, "uid %u has %ld captures in %s, and one user may have %u (max_captures=)", step->uid,
                 count, settings->spool, settings->max_captures);
        close(lock);
        return -1;
    }
    int failed = mkdirat(spool, making, 0700);
    if (!failed) {
        failed = fill(capture, spool, making, text, size, step);
        FAULT_POINT(capture_made);
        failed = failed || renameat(spool, making, spool, capture->name);
        int error = errno;
        FAULT_POINT(capture_named);
        if (failed)
            remove_making(spool, making);
        errno = error;
    }
    if (failed) {
        snprintf(why, why_size, "no directory could be made in %s: %s", settings->spool, strerror(errno));
        capture_close(capture);
    }
    close(lock);
    return failed ? -1 : 0;
}

void capture_sync(const struct capture *capture, int spool)
{
    if (fork() != 0)
        return; /* where there is no process available, the kernel syncs it within half a minute */
    const int fds[] = {capture->identity, capture->folder, spool};
    for (int i = 0; i < 3; i++) /* fds 0 to 2 are no others' here: nothing of the task's stays open while it waits */
        (void)dup2(fds[i], i);
    close_from(3);
    _exit(fsync(0) | fsync(1) | fsync(2) ? 1 : 0);
}

void capture_unmake(struct capture *capture, int spool)
{
    unlinkat(capture->segments, "counters", 0);
    if (unlinkat(capture->folder, "segments", AT_REMOVEDIR) == 0) { /* else somebody wrote to it: the shipper's then */
        unlinkat(capture->folder, "identity.json", 0);
        unlinkat(spool, capture->name, AT_REMOVEDIR);
    }
    capture_close(capture);
}

void capture_close(struct capture *capture)
{
    close_fd(&capture->folder);
    close_fd(&capture->identity);
    close_fd(&capture->segments);
}

struct counters *counters_make(int segments)
{
    struct counters first = {.magic = {'L', 'O', 'G', 'C', 'N', 'T', '\r', '\n'}, .version = 1, .pid = (uint32_t)getpid()};
    (void)process_started("/proc/self/stat", &first.started); /* 0: only its number is known */
    int fd = openat(segments, "counters", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    /* written, not only sized: a hole on a full disk would be a SIGBUS later, in the midst of the
     * relay */
    void *shared = MAP_FAILED;
    if (write_all(fd, &first, sizeof first) == 0)
        shared = mmap(NULL, sizeof first, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    if (shared == MAP_FAILED)
        unlinkat(segments, "counters", 0);
    close(fd);
    errno = error;
    return shared == MAP_FAILED ? NULL : shared;
}

void counters_note_end(struct counters *counters, int wait_status)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) == 0)
        counters->ended_ns = (uint64_t)now.tv_sec * (uint64_t)SEC_NS + (uint64_t)now.tv_nsec;
    counters->wait_status = wait_status;
    __atomic_store_n(&counters->ended, 1, __ATOMIC_RELEASE);
}
