#include "words.h"

#include "basics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS ".jobs/words"
enum { MOST_BYTES = 16 << 10, LINE_BYTES = 1024, TRIES = 3 };

/* Returns whether it was the last one to have its name: else somebody may have read it already. */
static bool append(int spool, const char *text, size_t size)
{
    struct stat found;
    int fd = openat(spool, WORDS, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return true;
    if (fstat(fd, &found) == 0 && found.st_size + (off_t)size <= MOST_BYTES)
        (void)write_all(fd, text, size);
    bool kept = fstat(fd, &found) || found.st_nlink;
    close(fd);
    return kept;
}

void words_keep(int spool, const char *line)
{
    char text[LINE_BYTES + 1];
    int size = snprintf(text, sizeof text, "%.*s\n", LINE_BYTES - 1, line);
    for (int tries = 0; size > 0 && tries < TRIES && !append(spool, text, (size_t)size); tries++)
        ; /* taken meanwhile: told twice rather than never */
}

void words_take(int spool, void (*log)(const char *text))
{
    static char text[MOST_BYTES + 1];
    char own[64];
    size_t size = 0;
    snprintf(own, sizeof own, ".jobs/.words-%ld", (long)getpid());
    if (renameat(spool, WORDS, spool, own))
        return; /* as a rule there are none */
    int fd = openat(spool, own, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    unlinkat(spool, own, 0);
    if (fd < 0)
        return;
    for (ssize_t more; size < MOST_BYTES && ((more = read(fd, text + size, MOST_BYTES - size)) > 0 ||
                                             (more < 0 && errno == EINTR));)
        size += more > 0 ? (size_t)more : 0;
    close(fd);
    text[size] = 0;
    char *at = text;
    for (char *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        log(at);
    }
}
