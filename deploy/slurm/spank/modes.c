#include "modes.h"

#include "basics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SLOTS = 4095, PAGE_BYTES = 4096, LOCK_MS = 1500 };

struct modes_file {
    char magic[8]; /* LOGMOD\r\n */
    uint64_t version;
    uint64_t begun; /* captures, so far */
    uint64_t ended; /* the narrowest mode of those that are over and have no slot any more */
    uint64_t reserved[4];
    struct modes_slot slots[];
};

_Static_assert(sizeof(struct modes_slot) == 64 && sizeof(struct modes_file) == 64, "the layout in docs/side-pipe.md");

#define GET(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

static int take_lock(int fd)
{
    int64_t deadline = now_ns() + LOCK_MS * MS_NS;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || !ms_until(deadline))
            return -1;
        nanosleep(&(struct timespec){.tv_nsec = MS_NS}, NULL); /* who has it is through in much less */
    }
    return 0;
}

/* A page more; written, not only sized: a hole on a full disk would be a SIGBUS later, in the midst
 * of a relay. */
static int grow(int fd, off_t size)
{
    static const char zeros[PAGE_BYTES];
    ssize_t done = pwrite(fd, zeros, sizeof zeros, size);
    if (done == (ssize_t)sizeof zeros)
        return 0;
    if (done >= 0)
        errno = ENOSPC;
    return -1;
}

/* By a description of its own: one that is mapped stays, and its locks with it, until the relay
 * ends. */
static struct modes_file *map(int fd, size_t size)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    struct modes_file *file = own < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    close_fd(&own);
    return file == MAP_FAILED ? NULL : file;
}

static int lock_slot(int fd, unsigned number, int command, short *type)
{
    struct flock range = {.l_type = *type, .l_whence = SEEK_SET, .l_len = sizeof(struct modes_slot)};
    range.l_start = (off_t)(sizeof(struct modes_file) + number * sizeof(struct modes_slot));
    int failed = fcntl(fd, command, &range);
    *type = range.l_type;
    return failed;
}

static int hold(int fd, unsigned number)
{
    short type = F_WRLCK;
    return lock_slot(fd, number, F_OFD_SETLK, &type);
}

/* Nobody holds the slot's lock: relay or sidecar died in its course. */
static bool is_dead(int fd, unsigned number)
{
    short type = F_WRLCK;
    return lock_slot(fd, number, F_OFD_GETLK, &type) == 0 && type == F_UNLCK;
}

static bool has_unread(const struct modes_slot *slot)
{
    return GET(slot->taken[0]) > GET(slot->obeyed[0]) || GET(slot->taken[1]) > GET(slot->obeyed[1]);
}

/* Gives up the slot of a capture that is over; its last mode counts on. In doubt that is the
 * narrowest. */
static void fold(struct modes_file *file, struct modes_slot *slot)
{
    uint64_t mode = !GET(slot->over) && has_unread(slot) ? MODE_DISABLED : GET(slot->mode);
    if (mode > file->ended)
        file->ended = mode;
    SET(slot->begun, 0);
}

/* A slot that is free, or becomes so, and is ours from here on; -1: none of `count`. */
static long free_slot(struct modes_file *file, int fd, unsigned count)
{
    long found = -1;
    for (unsigned i = 0; i < count; i++) {
        struct modes_slot *slot = &file->slots[i];
        if (slot->begun && (GET(slot->over) || (count >= MAX_SLOTS && is_dead(fd, i))))
            fold(file, slot);
        if (!slot->begun && found < 0 && hold(fd, i) == 0) /* who was in it may still be about to end */
            found = (long)i;
    }
    return found;
}

static int note_awaited(struct modes *modes, const struct modes_file *file, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct modes_slot *slot = &file->slots[i];
        struct modes_awaited awaited = {.number = i, .begun = GET(slot->begun)};
        if (!awaited.begun || i == modes->number || GET(slot->over) || !has_unread(slot))
            continue;
        awaited.taken[0] = GET(slot->taken[0]);
        awaited.taken[1] = GET(slot->taken[1]);
        if (modes->awaited < 0)
            modes->awaited = memfd_create("logshipper-awaited", MFD_CLOEXEC);
        if (modes->awaited < 0 || write_all(modes->awaited, &awaited, sizeof awaited))
            return -1;
    }
    return 0;
}

static bool is_table(const struct modes_file *file)
{
    return memcmp(file->magic, "LOGMOD\r\n", sizeof file->magic) == 0 && file->version == 1;
}

/* With the table locked. Returns 0, or -1. */
static int take_slot(struct modes *modes)
{
    struct stat found;
    if (fstat(modes->fd, &found) || (found.st_size == 0 && grow(modes->fd, 0)))
        return -1;
    size_t size = found.st_size ? (size_t)found.st_size : PAGE_BYTES;
    struct modes_file *file = size % PAGE_BYTES ? NULL : map(modes->fd, size);
    if (!file)
        return -1;
    if (!found.st_size)
        *file = (struct modes_file){.magic = {'L', 'O', 'G', 'M', 'O', 'D', '\r', '\n'}, .version = 1};
    unsigned count = (unsigned)(size / sizeof *file - 1);
    if (!is_table(file) || count > MAX_SLOTS)
        return -1; /* what is mapped goes with the process, here and below */
    long number = free_slot(file, modes->fd, count);
    if (number < 0) {
        if (count >= MAX_SLOTS || grow(modes->fd, (off_t)size) || !(file = map(modes->fd, size + PAGE_BYTES)) ||
            hold(modes->fd, count))
            return -1;
        number = (long)count;
        count += PAGE_BYTES / sizeof *file;
    }
    modes->number = (unsigned)number;
    if (note_awaited(modes, file, count))
        return -1;
    modes->slot = &file->slots[number];
    memset(modes->slot, 0, sizeof *modes->slot);
    SET(modes->slot->begun, ++file->begun);
    return 0;
}

void modes_begin(struct modes *modes, int spool, const struct wire_step *step)
{
    char name[64];
    snprintf(name, sizeof name, ".jobs/%u.%u.%u.modes", step->job_id, step->uid, step->restarts);
    *modes = (struct modes){.awaited = -1};
    modes->fd = openat(spool, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    int failed = modes->fd < 0 || take_lock(modes->fd); /* root's: the user must not let it grow */
    if (!failed) {
        failed = take_slot(modes);
        (void)flock(modes->fd, LOCK_UN);
    }
    if (failed || (modes->awaited >= 0 && lseek(modes->awaited, 0, SEEK_SET))) {
        close_fd(&modes->fd);
        close_fd(&modes->awaited);
        modes->slot = NULL;
    }
}

void modes_took(struct modes_slot *slot, int stream, uint64_t size)
{
    if (slot)
        SET(slot->taken[stream - 1], slot->taken[stream - 1] + size);
}
