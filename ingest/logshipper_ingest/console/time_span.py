"""Spans of time as people write them on a command line. Pure."""

import argparse
import re

_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", re.ASCII)
_UNIT_SECS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_MAX_SECS = 3650 * 86_400


def time_span(text: str) -> float:
    """Seconds of `90s`, `30m`, `12h`, `7d`, `2w`: a type of argparse."""
    match = _SPAN.fullmatch(text)
    secs = float(match[1]) * _UNIT_SECS[match[2]] if match else 0.0
    if not 0 < secs <= _MAX_SECS:
        raise argparse.ArgumentTypeError(
            f"{text!r} isn't a span of time; it looks like 90s, 12h or 7d, ten years at most"
        )
    return secs
