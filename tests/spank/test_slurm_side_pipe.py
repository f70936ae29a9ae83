"""The relay under Slurm sends frames to the sidecar at the right times
(deploy/slurm/spank/side_pipe.c). A test program plays the clock."""

import subprocess
from pathlib import Path

import pytest

from logshipper.relay import channel
from logshipper.relay.side_pipe import HEADER, SideType
from logshipper.render import command_prefix
from tests.slurm.tools.plugin import SOURCE
from tests.spank.test_slurm_channel import compiled
from tests.tools.captures.gather_cases import CASES, Call, Case, Frame

# Each line of stdin is one turn: milliseconds, then `NAME:STREAM:FLAGS:HEX` of each call. The
# program answers with the sent bytes in hex, and the relay's longest wait in ms (-1: forever).
PROGRAM = """
#include "side_pipe.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct side_pipe side;
static char line[1 << 18];
static unsigned char bytes[1 << 16];

static void call(char *word)
{
    char name[16];
    unsigned stream, flags;
    int end;
    if (sscanf(word, "%15[a-z]:%u:%u:%n", name, &stream, &flags, &end) != 3)
        exit(1);
    size_t size = 0;
    for (char *hex = word + end; *hex; hex += 2)
        sscanf(hex, "%2hhx", &bytes[size++]);
    if (!strcmp(name, "data"))
        side_data(&side, stream, bytes, size, flags);
    else if (!strcmp(name, "empty"))
        side_empty(&side, flags);
    else if (!strcmp(name, "closed"))
        side_closed(&side, stream);
    else
        side_exit(&side, 0);
}

int main(void)
{
    int fds[2];
    if (pipe(fds))
        return 1;
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    fcntl(fds[1], F_SETPIPE_SZ, 1 << 20);
    side.fd = fds[1];
    while (fgets(line, sizeof line, stdin)) {
        char *word = strtok(line, " \\n");
        int64_t now = (100000 + atoll(word)) * 1000000;
        while ((word = strtok(NULL, " \\n")))
            call(word);
        if (now >= side.due_ns)
            side_send(&side, now);
        ssize_t size;
        while ((size = read(fds[0], bytes, sizeof bytes)) > 0)
            for (ssize_t i = 0; i < size; i++)
                printf("%02x", bytes[i]);
        int64_t wait_ns = side_wait_ns(&side, now, INT64_MAX);
        printf(" %lld\\n", wait_ns == INT64_MAX ? -1LL : (long long)wait_ns / 1000000);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("side_pipe")
    return compiled(folder, "turns", PROGRAM, parts=("side_pipe.c",))


def _word(call: Call) -> str:
    return f"{call.name}:{call.stream}:{call.flags}:{call.data.hex()}"


def _frames(data: bytes) -> list[Frame]:
    frames = []
    while data:
        kind, stream, flags, size = HEADER.unpack_from(data)
        end = HEADER.size + size
        frames.append((SideType(kind), stream, flags, data[HEADER.size : end]))
        data = data[end:]
    return frames


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_gathers_and_what_does_not(turns: Path, case: Case) -> None:
    lines = [" ".join([str(step.ms), *map(_word, step.calls)]) for step in case.steps]
    done = subprocess.run(
        [turns],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    for step, answer in zip(case.steps, done.stdout.splitlines(), strict=True):
        sent, wait_ms = answer.split(" ")
        assert _frames(bytes.fromhex(sent)) == list(step.frames), step
        assert int(wait_ms) == (-1 if step.wait_ms is None else step.wait_ms), step


def test_both_relays_have_the_same_beat_and_command() -> None:
    header, source = (SOURCE / "side_pipe.h").read_text(), (SOURCE / "side_pipe.c").read_text()
    assert f"SIDE_GATHER_NS = {round(channel.BEAT_SECS * 1000)} * 1000000;" in header
    assert f'"{command_prefix.PREFIX.decode()}"' in source
    assert f"SIDE_COMMAND_BYTES = {len(command_prefix.PREFIX)}," in header
