"""Why Loki refuses entries, or puts them off: one word for each reason, by Loki's own words. Pure."""

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
STREAM_LIMIT = "stream_limit"
TENANT_RATE = "tenant_rate"
STREAM_RATE = "stream_rate"
_THROTTLES = (
    (STREAM_LIMIT, re.compile(r"maximum active stream|stream limit", re.I)),
    (STREAM_RATE, re.compile(r"per.stream rate limit", re.I)),
    (TENANT_RATE, re.compile(r"ingestion rate limit", re.I)),
)
THROTTLES = (*(reason for reason, _ in _THROTTLES), OTHER)
REASONS = (*(reason for reason, _ in _PATTERNS), TOO_LARGE, OTHER)


def reason_of(error: PushError) -> str:
    """One of REASONS."""
    if error.status == 413:
        return TOO_LARGE
    return next((reason for reason, pattern in _PATTERNS if pattern.search(error.excerpt)), OTHER)


def throttle_of(error: PushError) -> str:
    """Which limit a 429 is about, one of THROTTLES; "" for any other answer. stream_limit: no new stream is taken, for
    as long as others are in use; stream_rate: this stream's share is used up; tenant_rate: that of all streams."""
    if error.status != 429:
        return ""
    return next((reason for reason, pattern in _THROTTLES if pattern.search(error.excerpt)), OTHER)
