#include "decision.h"

#include "basics.h"
#include "jobs_folder.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const WORDS[] = {
    [LOOK_ABSENT] = "out absent\n",
    [LOOK_UNKNOWN] = "out unknown\n",
    [LOOK_PRESENT] = "in present\n",
    [LOOK_REFUSED] = "in refused\n",
};

int spool_open(const char *path, char *why, size_t why_size)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        snprintf(why, why_size, "the spool %s can't be opened: %s", path, strerror(errno));
        return -1;
    }
    struct stat found;
    if (fstat(fd, &found))
        snprintf(why, why_size, "the spool %s can't be looked at: %s", path, strerror(errno));
    else if (found.st_uid != geteuid())
        snprintf(why, why_size, "the spool %s belongs to uid %u, not to uid %u", path, (unsigned)found.st_uid,
                 (unsigned)geteuid());
    else if ((found.st_mode & 0777) != 0711)
        snprintf(why, why_size, "the spool %s has mode %04o; run `chmod 711` on it", path,
                 (unsigned)found.st_mode & 0777);
    else
        return fd;
    close(fd);
    return -1;
}

static void name_of(char *name, size_t size, uint32_t job_id, uint32_t uid, uint32_t restarts)
{
    snprintf(name, size, "%u.%u.%u", job_id, uid, restarts);
}

int decision_find(int spool, uint32_t job_id, uint32_t uid, uint32_t restarts, struct look *look)
{
    char name[64], path[80], text[16 + OPTIN_MAX_BYTES];
    name_of(name, sizeof name, job_id, uid, restarts);
    snprintf(path, sizeof path, ".jobs/%s", name);
    int fd = openat(spool, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    size_t size = 0;
    ssize_t more = 0;
    while (size < sizeof text && ((more = read(fd, text + size, sizeof text - size)) > 0 || (more < 0 && errno == EINTR)))
        size += more > 0 ? (size_t)more : 0;
    int error = more < 0 ? errno : EBADMSG;
    close(fd);
    for (unsigned state = LOOK_ABSENT; more >= 0 && state <= LOOK_REFUSED; state++) {
        size_t length = strlen(WORDS[state]);
        if (size < length || memcmp(text, WORDS[state], length) != 0 || size - length > OPTIN_MAX_BYTES)
            continue;
        look->state = (enum look_state)state;
        look->size = size - length;
        memcpy(look->content, text + length, look->size);
        return 1;
    }
    errno = error;
    return -1;
}

int decision_make(int spool, uint32_t job_id, uint32_t uid, uint32_t restarts, struct look *look)
{
    char name[64];
    int stands = decision_find(spool, job_id, uid, restarts, look);
    if (stands)
        return stands > 0 ? 0 : -1;
    name_of(name, sizeof name, job_id, uid, restarts);
    if (jobs_write(spool, name, WORDS[look->state], look->content, look->size, false) == 0)
        return 0;
    return errno == EEXIST && decision_find(spool, job_id, uid, restarts, look) > 0 ? 0 : -1;
}

int decision_bits(const struct look *look)
{
    if (look->state == LOOK_PRESENT)
        return WIRE_IN | optin_options(look->content, look->size);
    return look->state == LOOK_REFUSED ? WIRE_IN : 0;
}
