"""One stream of the relay under Slurm (deploy/slurm/spank/channel.c), by a program that says what the kernel gives."""

import subprocess
from pathlib import Path

import pytest

from tests.slurm import gate
from tests.tools.slurm_player import SOURCE, missing

PARTS = ("channel.c", "output.c", "journal.c", "basics.c")
# --wrap: reads of the master are answered by the word in argv[1], a letter each: d: data, e: EIO, a: EAGAIN, z: the end
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


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gate.skip_if_off()
    if missing():
        gate.lacking(missing())
    folder = tmp_path_factory.mktemp("channel")
    (folder / "program.c").write_text(PROGRAM)
    sources = [str(place) for place in (folder / "program.c", *(SOURCE / name for name in PARTS))]
    flags = ["-std=c11", "-D_GNU_SOURCE", f"-I{SOURCE}", "-Wl,--wrap=read"]
    command = ["gcc", *flags, "-o", str(folder / "program"), *sources]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return folder / "program"


@pytest.mark.parametrize(
    ("answers", "size", "at_end"),
    [
        ("ddee", 16, True),
        ("dedee", 16, True),  # what Linux does now and then: the last bytes come after a first EIO
        ("eee", 0, True),
        ("dea", 8, False),
        ("da", 8, False),
        ("dz", 8, True),
        ("d" * 9000, 61440, False),  # as much as a turn takes
    ],
)
def test_a_terminals_end(program: Path, answers: str, size: int, at_end: bool) -> None:
    said = subprocess.run([program, answers], capture_output=True, text=True, check=True).stdout.split()
    assert said[:2] == [str(size), str(int(at_end))]
