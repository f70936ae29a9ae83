"""The agent keeps freed memory up to a limit."""

import platform
import subprocess
import sys

import pytest

from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.sources import ROOT

# allocate a round's three buffers again and again; count new pages before and after
PROGRAM = """
import resource
from logshipper_ingest.agent.heap import keep_freed_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        buffers = [bytes(1 << 20) for _ in range(3)]
        del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = new_pages()
keep_freed_memory()
new_pages()
print(usual, new_pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_buffers_of_a_round_are_not_new_pages_each_time() -> None:
    words = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECS
    )
    usual_pages, later_pages = map(int, ran.stdout.split())
    assert later_pages * 20 < usual_pages, ran.stdout
