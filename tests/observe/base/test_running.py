"""The common frame of all reading commands."""

import argparse
import os
import signal
import sys
import time
import weakref

import pytest

from logshipper_observe.base.running import EXIT_INTERRUPTED, guarded


@pytest.mark.parametrize("secs", [0, 60])
def test_ctrl_c_in_a_finalizer_is_not_lost(secs: int) -> None:
    """Ctrl-C also counts if the command ends immediately."""

    class Thing:
        pass

    def work(_: argparse.Namespace) -> int:
        thing = Thing()
        weakref.finalize(thing, os.kill, os.getpid(), signal.SIGINT)
        del thing
        time.sleep(secs)
        return 0

    usual = sys.unraisablehook
    assert guarded(work)(argparse.Namespace()) == EXIT_INTERRUPTED
    assert sys.unraisablehook is usual
