"""Why Loki refuses entries: one word for each reason, by Loki's own words. Pure."""

import re

from logshipper.errors import PushError

TOO_LARGE = "too_large"  # HTTP 413
OTHER = "other"  # words that nobody knows
CERTAIN = {"too_far_behind", "too_old", "too_new", "line_too_long", TOO_LARGE}  # about these entries, surely
_PATTERNS = (
    ("metadata_disallowed", re.compile(r"feature is disallowed", re.I)),
    ("too_far_behind", re.compile(r"too far behind|out of order", re.I)),
    ("too_old", re.compile(r"timestamp too old|older than", re.I)),
    ("too_new", re.compile(r"too new", re.I)),
    ("line_too_long", re.compile(r"line too long|max entry size|exceeded max", re.I)),
    ("metadata_too_large", re.compile(r"structured metadata", re.I)),
    ("stream_limit", re.compile(r"maximum active stream", re.I)),
    ("labels", re.compile(r"label", re.I)),
)
REASONS = (*(reason for reason, _ in _PATTERNS), TOO_LARGE, OTHER)


def reason_of(error: PushError) -> str:
    """One of REASONS."""
    if error.status == 413:
        return TOO_LARGE
    return next((reason for reason, pattern in _PATTERNS if pattern.search(error.excerpt)), OTHER)
