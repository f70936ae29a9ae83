#include "ends.h"

#include "basics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static int open_pty(int *master, int *slave, unsigned columns, unsigned rows)
{
    char name[64];
    struct termios attributes;
    const struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
    *master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*master < 0 || unlockpt(*master))
        return -1;
    *slave = -1;
#ifdef TIOCGPTPEER
    *slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC); /* needs no path: fit for containers */
#endif
    if (*slave < 0 && ptsname_r(*master, name, sizeof name) == 0)
        *slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*slave < 0 || tcgetattr(*slave, &attributes))
        return -1;
    cfmakeraw(&attributes);
    return tcsetattr(*slave, TCSANOW, &attributes) || ioctl(*master, TIOCSWINSZ, &size) ? -1 : 0;
}

static int open_pipe(int *master, int *slave)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC))
        return -1;
    *master = pair[0];
    *slave = pair[1];
    return 0;
}

static int make(struct ends *ends, unsigned columns, unsigned rows)
{
    for (int i = 0; i < 2; i++)
        ends->masters[i] = ends->slaves[i] = -1;
    for (int i = 0; i < 2; i++) {
        int failed = ends->tty ? open_pty(&ends->masters[i], &ends->slaves[i], columns, rows)
                               : open_pipe(&ends->masters[i], &ends->slaves[i]);
        if (failed) {
            int error = errno;
            ends_close(ends);
            errno = error;
            return -1;
        }
    }
    return 0;
}

int ends_make(struct ends *ends, int tty, unsigned columns, unsigned rows)
{
    ends->tty = tty;
    if (make(ends, columns, rows) == 0)
        return 0;
    if (!tty)
        return -1;
    ends->tty = 0;
    return make(ends, columns, rows);
}

void ends_close(struct ends *ends)
{
    for (int i = 0; i < 2; i++) {
        close_fd(&ends->masters[i]);
        close_fd(&ends->slaves[i]);
    }
}
