#include "last_words.h"

#include "wire.h"
#include "words.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

enum { MOST_LINES = 16, LINE_BYTES = 1024 };

/* Those that may not have been read yet, as many as there is room for; the first ones tell most. */
static char lines[MOST_LINES][LINE_BYTES];
static unsigned count;

/* Whether slurmstepd has read all. */
static int is_all_read(int socket)
{
    int unread = 0;
    return ioctl(socket, SIOCOUTQ, &unread) == 0 && unread == 0;
}

void last_words_say(int socket, int spool, const char *line)
{
    struct wire_head head = {.type = WIRE_SAY, .size = (uint32_t)strlen(line)};
    int all_read = socket >= 0 && is_all_read(socket); /* also where it is gone, as the next call tells */
    if (socket >= 0 && wire_send(socket, head, line, NULL, 0, 0) == 0) {
        count = all_read ? 0 : count;
        if (count < MOST_LINES)
            snprintf(lines[count++], LINE_BYTES, "%s", line);
        return;
    }
    if (socket >= 0 && errno == ECONNRESET)
        last_words_unread(spool);
    if (spool >= 0)
        words_keep(spool, line);
}

void last_words_drained(int socket, int spool, uint32_t task)
{
    if (socket >= 0 && wire_tell(socket, WIRE_DRAINED, task, 0, 0) && errno == ECONNRESET)
        last_words_unread(spool);
}

void last_words_unread(int spool)
{
    for (unsigned i = 0; i < count && spool >= 0; i++)
        words_keep(spool, lines[i]);
    count = 0;
}
