"""One stream of the relay under Slurm (deploy/slurm/spank/channel.c). A test program plays the
kernel."""

import subprocess
from pathlib import Path

import pytest

from tests.slurm.tools import gate
from tests.slurm.tools.plugin import SOURCE
from tests.tools.captures.line_cases import CASES, Case
from tests.tools.fakes.slurm_player import build_obstacle

PARTS = ("channel.c", "output.c", "journal.c", "basics.c")
# --wrap answers reads of the master by the letters of argv[1]: d: data, e: EIO, a: EAGAIN, z: the
# end
PROGRAM = """
#include "channel.h"
#include "spool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static const char *answers;
ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size)
{
    (void)fd;
    char answer = *answers ? *answers++ : 'a';
    if (answer == 'd' && size >= 8) {
        __builtin_memcpy(to, "err 123\\n", 8);
        return 8;
    }
    errno = answer == 'e' ? EIO : EAGAIN;
    return answer == 'z' ? 0 : -1;
}

int main(int argc, char **argv)
{
    static struct channel channel;
    static struct counters counters;
    static struct journal journal;
    const unsigned char *data;
    answers = argc > 1 ? argv[1] : "";
    int master = open("/dev/null", O_RDONLY), out = open("/dev/null", O_WRONLY);
    if (journal_make(&journal))
        return 1;
    channel_init(&channel, 1, master, out, &counters, &journal);
    size_t size = channel_read(&channel, &data, 0);
    printf("%zu %d %zu\\n", size, channel.at_end, __builtin_strlen(answers));
    return 0;
}
"""
# Each line of stdin is one poll: milliseconds, then `STREAM:HEX` of the bytes to read. The program
# answers with the written bytes in hex. Both streams go to one terminal (`terminal`) or to one
# pipe.
LINES = """
#include "channel.h"
#include "spool.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static struct channel channels[2];
static struct counters counters;
static struct journal journal;
static struct shared_line shared;
static char line[1 << 16];
static unsigned char bytes[1 << 16];

int main(int argc, char **argv)
{
    int in[2][2], out[2];
    if (journal_make(&journal) || pipe(in[0]) || pipe(in[1]) || argc < 2)
        return 1;
    if (!strcmp(argv[1], "terminal")) {
        struct termios raw;
        out[0] = posix_openpt(O_RDWR | O_NOCTTY);
        if (out[0] < 0 || grantpt(out[0]) || unlockpt(out[0]))
            return 1;
        out[1] = open(ptsname(out[0]), O_RDWR | O_NOCTTY);
        if (tcgetattr(out[1], &raw))
            return 1;
        cfmakeraw(&raw);
        tcsetattr(out[1], TCSANOW, &raw);
    } else if (pipe(out)) {
        return 1;
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 2; i++)
        channel_init(&channels[i], i + 1, in[i][0], dup(out[1]), &counters, &journal);
    channel_pair(&channels[0], &channels[1], &shared);
    while (fgets(line, sizeof line, stdin)) {
        char *word = strtok(line, " \\n");
        int64_t now = (100000 + atoll(word)) * 1000000;
        int order[2], count = 0;
        channels[0].ready = channels[1].ready = false;
        while ((word = strtok(NULL, " \\n"))) {
            int at = word[0] - '1';
            size_t size = 0;
            for (char *hex = word + 2; *hex; hex += 2)
                sscanf(hex, "%2hhx", &bytes[size++]);
            if (write(in[at][1], bytes, size) != (ssize_t)size)
                return 1;
            channels[at].ready = true;
            order[count++] = at;
        }
        for (int i = 0; i < 2; i++)
            channel_polled(&channels[i], now);
        for (int i = 0; i < count; i++) {
            const unsigned char *data;
            if (channel_read(&channels[order[i]], &data, now))
                channel_deliver(&channels[order[i]], now);
        }
        for (int i = 0; i < 2; i++)
            if (channels[i].size && !channels[i].ready)
                channel_deliver(&channels[i], now);
        ssize_t size;
        while ((size = read(out[0], bytes, sizeof bytes)) > 0)
            for (ssize_t i = 0; i < size; i++)
                printf("%02x", bytes[i]);
        printf("\\n");
    }
    return 0;
}
"""


def compiled(
    folder: Path, name: str, text: str, *flags: str, parts: tuple[str, ...] = PARTS
) -> Path:
    gate.skip_if_off()
    if build_obstacle():
        gate.lacking(build_obstacle())
    (folder / f"{name}.c").write_text(text)
    sources = [str(place) for place in (folder / f"{name}.c", *(SOURCE / part for part in parts))]
    command = [
        "gcc",
        "-std=c11",
        "-D_GNU_SOURCE",
        f"-I{SOURCE}",
        *flags,
        "-o",
        str(folder / name),
        *sources,
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder / name


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("channel"), "program", PROGRAM, "-Wl,--wrap=read")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("lines"), "lines", LINES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lines_of_two_streams(lines: Path, case: Case) -> None:
    polls = [
        " ".join([str(step.ms), *(f"{stream}:{text.hex()}" for stream, text in step.texts)])
        for step in case.steps
    ]
    place = "terminal" if case.is_terminal else "pipe"
    done = subprocess.run(
        [lines, place], input="\n".join(polls) + "\n", capture_output=True, text=True, check=True
    )
    assert [bytes.fromhex(line) for line in done.stdout.splitlines()] == [
        step.output for step in case.steps
    ]


@pytest.mark.parametrize(
    ("answers", "size", "at_end"),
    [
        ("ddee", 16, True),
        ("dedee", 16, True),  # Linux does this occasionally: the last bytes follow a first EIO
        ("eee", 0, True),
        ("dea", 8, False),
        ("da", 8, False),
        ("dz", 8, True),
        ("d" * 9000, 61440, False),  # the limit of one turn
    ],
)
def test_a_terminals_end(program: Path, answers: str, size: int, at_end: bool) -> None:
    answer = subprocess.run(
        [program, answers], capture_output=True, text=True, check=True
    ).stdout.split()
    assert answer[:2] == [str(size), str(int(at_end))]
