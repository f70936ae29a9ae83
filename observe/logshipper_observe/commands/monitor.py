"""`logshipper monitor JOB`: its state and its log as it grows, in XT's way: `logs --follow` that
also tells without a terminal what becomes of the job."""

import argparse

from logshipper_observe.commands import logs

_AS_LOGS_HAS_THEM = {
    "after": None, "attempt": "all", "color": "auto", "follow": True, "grep": None, "json": False, "times": False,
}  # fmt: skip


def call(args: argparse.Namespace) -> int:
    for name, value in _AS_LOGS_HAS_THEM.items():
        setattr(args, name, value)
    return logs.call(args, tells=True)
