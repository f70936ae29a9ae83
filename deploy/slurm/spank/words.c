#include "words.h"

#include "basics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS ".jobs/words"
enum { MOST_BYTES = 16 << 10, LINE_BYTES = 1024 };

void words_keep(int spool, const char *line)
{
    char text[LINE_BYTES + 1];
    struct stat found;
    int fd = openat(spool, WORDS, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    int size = snprintf(text, sizeof text, "%.*s\n", LINE_BYTES - 1, line);
    if (size > 0 && fstat(fd, &found) == 0 && found.st_size + size <= MOST_BYTES)
        (void)write_all(fd, text, (size_t)size);
    close(fd);
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
