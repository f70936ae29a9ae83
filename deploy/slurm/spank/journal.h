/* What a relay leaves to whoever relays on when it was killed: all that it has read of the task's
 * streams, and how far it had come. It lies in memory that the sidecar holds too
 * (docs/side-pipe.md, "What a killed relay leaves"), so no byte of the job's own output is lost
 * with the relay, wherever in its course it dies:
 * - Bytes are read straight into a ring, which was filled with marks first: what a read has brought
 *   shows by itself, whether or not the relay lived to count it.
 * - Before bytes are written on it is noted which, and where: how many went out shows by the file's
 *   offset, or by what is left in a pipe of our own from which the kernel moves them.
 * Stores are in program order; nobody reads them while this process lives. */
#ifndef LOGSHIPPER_JOURNAL_H
#define LOGSHIPPER_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The ring holds what own output or log may still want: 124 KiB, and what waits for the side
 * pipe. */
enum { RING_BYTES = 512 << 10, MARKS_BYTES = 4096 };

enum intent {
    INTENT_NONE,
    INTENT_FILE,    /* bytes go to a file whose offset was intent_offset: it tells how many did */
    INTENT_STAGING, /* bytes go into our own pipe; none have left it */
    INTENT_STAGED,  /* bytes leave our own pipe: what isn't in it any more is out */
    INTENT_BLIND,   /* nobody can tell: they count as not written */
};

/* Of one stream. Positions count the stream's bytes from its beginning. */
struct entry {
    uint64_t read;    /* taken from the task, and counted */
    uint64_t marked;  /* the ring holds marks from `read` to here */
    uint64_t written; /* dealt with in its own output; not kept up while an intent stands */
    uint64_t intent_from, intent_size;
    int64_t intent_offset;
    uint32_t intent, counted_in; /* counted_in: which of `counted` holds */
    struct {
        uint64_t bytes, feeds; /* line feeds up to a position */
    } counted[2];
    uint64_t closed; /* 1: the relay has dealt with all that came, and has let it go */
    uint64_t reserved[4];
};

struct journal_file {
    char magic[8]; /* LOGJNL\r\n */
    uint32_t version, ring_bytes;
    uint64_t reserved[14];
    struct entry entry[2];
};

struct journal {
    int fd; /* the sidecar's; -1: closed */
    struct journal_file *file;
    const unsigned char *marks;
    unsigned char *ring[2]; /* mapped twice, one after the other: what wraps around is in one piece all the same */
};

/* Makes it: a file without a name. Returns 0, or -1 (errno). */
int journal_make(struct journal *journal);

/* Where a stream's bytes from a position on are. */
unsigned char *journal_at(const struct journal *journal, int stream, uint64_t position);

/* Where to read `size` bytes of the stream to, marked; then how many came. */
unsigned char *journal_room(struct journal *journal, int stream, size_t size);
void journal_took(struct journal *journal, int stream, size_t size);

/* Line feeds among the `size` bytes that came last, which are then counted. */
uint64_t journal_count(struct journal *journal, int stream, size_t size);

/* Bytes from `written` on are going out; and how many of these did, or never will. */
void entry_intend(struct entry *entry, enum intent intent, size_t size, int64_t offset);
void entry_settle(struct entry *entry, size_t size);

/* Bytes have left our own pipe, the last ones or not. */
void entry_moved(struct entry *entry, size_t size, bool last);

#endif
