#include "journal.h"

#include "basics.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { HEAD_BYTES = 4096, RINGS_AT = HEAD_BYTES + MARKS_BYTES, WHOLE_BYTES = RINGS_AT + 2 * RING_BYTES };

_Static_assert(sizeof(struct entry) == 128 && sizeof(struct journal_file) == 384, "the layout in docs/side-pipe.md");

/* The compiler keeps the order; the processor shows a dead process' stores in it. */
#define SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

static void *map(void *at, size_t size, int fd, long offset)
{
    void *found = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, offset);
    return found == MAP_FAILED ? NULL : found;
}

static unsigned char *map_ring(int fd, long offset)
{
    unsigned char *both = mmap(NULL, 2 * RING_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED || !map(both, RING_BYTES, fd, offset) || !map(both + RING_BYTES, RING_BYTES, fd, offset))
        return NULL; /* what was mapped goes with the process: without it nothing is captured */
    return both;
}

/* Random, of the 13 bytes that UTF-8 never has: what ends in text never looks as if it had not
 * come. */
static int make_marks(unsigned char *marks)
{
    static const unsigned char never[] = {0xc0, 0xc1, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff};
    for (size_t at = 0; at < MARKS_BYTES; at += 256)
        if (getrandom(marks + at, 256, GRND_NONBLOCK) != 256)
            return -1;
    for (size_t at = 0; at < MARKS_BYTES; at++)
        marks[at] = never[marks[at] % sizeof never];
    return 0;
}

int journal_make(struct journal *journal)
{
    journal->fd = memfd_create("logshipper-journal", MFD_CLOEXEC);
    if (journal->fd < 0)
        return -1;
    unsigned char *head = NULL;
    int failed = ftruncate(journal->fd, WHOLE_BYTES) || !(head = map(NULL, RINGS_AT, journal->fd, 0)) ||
                 make_marks(head + HEAD_BYTES);
    for (int i = 0; !failed && i < 2; i++) {
        journal->ring[i] = map_ring(journal->fd, RINGS_AT + i * (long)RING_BYTES);
        failed = !journal->ring[i];
    }
    if (failed) {
        int error = errno;
        close_fd(&journal->fd);
        errno = error;
        return -1;
    }
    journal->file = (struct journal_file *)(void *)head;
    journal->marks = head + HEAD_BYTES;
    *journal->file = (struct journal_file){
        .magic = {'L', 'O', 'G', 'J', 'N', 'L', '\r', '\n'}, .version = 1, .ring_bytes = RING_BYTES};
    return 0;
}

unsigned char *journal_at(const struct journal *journal, int stream, uint64_t position)
{
    return journal->ring[stream - 1] + position % RING_BYTES;
}

unsigned char *journal_room(struct journal *journal, int stream, size_t size)
{
    struct entry *entry = &journal->file->entry[stream - 1];
    while (entry->marked < entry->read + size) {
        size_t at = entry->marked % MARKS_BYTES;
        memcpy(journal_at(journal, stream, entry->marked), journal->marks + at, MARKS_BYTES - at);
        SET(entry->marked, entry->marked + MARKS_BYTES - at);
    }
    return journal_at(journal, stream, entry->read);
}

void journal_took(struct journal *journal, int stream, size_t size)
{
    struct entry *entry = &journal->file->entry[stream - 1];
    SET(entry->read, entry->read + size);
}

uint64_t journal_count(struct journal *journal, int stream, size_t size)
{
    struct entry *entry = &journal->file->entry[stream - 1];
    const unsigned char *bytes = journal_at(journal, stream, entry->read - size);
    uint32_t next = !entry->counted_in;
    uint64_t feeds = 0;
    for (size_t i = 0; i < size; i++)
        feeds += bytes[i] == '\n';
    entry->counted[next].bytes = entry->read;
    entry->counted[next].feeds = entry->counted[!next].feeds + feeds;
    SET(entry->counted_in, next);
    return feeds;
}

void entry_intend(struct entry *entry, enum intent intent, size_t size, int64_t offset)
{
    entry->intent_from = entry->written;
    entry->intent_size = size;
    entry->intent_offset = offset;
    SET(entry->intent, (uint32_t)intent);
}

void entry_settle(struct entry *entry, size_t size)
{
    SET(entry->written, entry->written + size);
    SET(entry->intent, (uint32_t)INTENT_NONE);
}

void entry_moved(struct entry *entry, size_t size, bool last)
{
    SET(entry->written, entry->written + size);
    if (last)
        SET(entry->intent, (uint32_t)INTENT_NONE);
}
